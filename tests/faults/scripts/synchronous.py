"""A custom loop of `tfk8s.strategy()`, whose replicas are on the workers."""

import tensorflow as tf

import tfk8s

strategy = tfk8s.strategy()
with strategy.scope():
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)


@tf.function
def step():
    return strategy.run(lambda: total.assign_add(tf.reduce_sum(tf.random.normal([100]))))


step()
print("a step", flush=True)
while True:
    step()
