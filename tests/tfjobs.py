"""A TFJob."""

TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
            - {name: tensorflow, image: a, command: [b]}
"""
