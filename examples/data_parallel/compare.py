"""Runs single.py and parallel.py and draws both learning curves in one picture: they overlap.

The argument says where the picture goes; without one, to curves.png in the current folder.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import parallel
import single

path = sys.argv[1] if len(sys.argv) > 1 else "curves.png"

single_curve, single_speed = single.run()
parallel_curve, parallel_speed = parallel.run()

# The curves are not exactly equal: the sum of two halves is rounded differently than the sum of the whole.
difference = np.max(np.abs(np.subtract(parallel_curve, single_curve)) / single_curve)
assert difference < 1e-4

plt.switch_backend("Agg")  # draws into files: no screen needed
figure, axes = plt.subplots()
axes.semilogy(single_curve, color="blue", linewidth=4, label="single.py")
axes.semilogy(parallel_curve, color="red", linewidth=1, label="parallel.py")
axes.set(title="A network learns y = e^x", xlabel="step", ylabel="cost")
axes.legend()
figure.savefig(path)

print(f"single.py   {single_speed:6.0f} steps/s")
print(f"parallel.py {parallel_speed:6.0f} steps/s")
print(f"largest relative difference of the costs: {difference:.0e}")
print(f"curves in {path}")
