"""Steps of TF-Agents' DqnAgent in `strategy.run`."""

import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.networks import sequential
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import StepType, time_step_spec, trajectory
from where import strategy, table

observations = tensor_spec.TensorSpec((4,), tf.float32)
actions = tensor_spec.BoundedTensorSpec((), tf.int32, 0, 1)
chosen = strategy()
with chosen.scope():
    network = sequential.Sequential([tf.keras.layers.Dense(2, kernel_initializer="ones")])
    agent = dqn_agent.DqnAgent(
        time_step_spec(observations), actions, network, tf.keras.optimizers.legacy.SGD(0.01),
        td_errors_loss_fn=lambda a, b: tf.losses.mean_squared_error(a[..., None], b[..., None]),
    )  # fmt: skip
    agent.initialize()
steps = np.full((16, 2), StepType.MID, "int32")
ones = np.ones((16, 2), "float32")
data = trajectory.Trajectory(
    step_type=steps, observation=table(16, 8).reshape(16, 2, 4), action=np.zeros((16, 2), "int32"), policy_info=(),
    next_step_type=steps, reward=ones, discount=ones,
)  # fmt: skip
batches = iter(chosen.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(data).batch(16).repeat()))


@tf.function
def step(batch):
    loss = chosen.run(lambda experience: agent.train(experience).loss, args=(batch,))
    return chosen.reduce("SUM", loss, axis=None)


for _ in range(5):
    print(f"{step(next(batches)):.6f}")
