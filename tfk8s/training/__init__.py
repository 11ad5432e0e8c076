"""Code that training programs call: a strategy over a cluster's tasks, and corrections of Keras."""
