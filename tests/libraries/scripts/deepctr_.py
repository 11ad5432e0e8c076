"""DeepFM of DeepCTR."""

import numpy as np
import tensorflow as tf
from deepctr.feature_column import DenseFeat, SparseFeat
from deepctr.models import DeepFM
from where import show, strategy, table

columns = [SparseFeat("item", 8, embedding_dim=4), DenseFeat("price", 1)]
rows = {"item": np.arange(64) % 8, "price": table(64, 1)}
tf.keras.utils.set_random_seed(1)
with strategy().scope():
    model = DeepFM(columns, columns, dnn_hidden_units=(8,), seed=1)
    model.compile("adam", "binary_crossentropy")
show(model.fit(rows, (rows["price"][:, 0] > 0).astype("float32"), batch_size=16, epochs=3, shuffle=False, verbose=0))
