"""From a folder of photographs to a model in use.

finetune.py     a pretrained network trained on a folder of photographs: `regmixup finetune`, `rm.finetune`
  request.py    its settings
  folder.py     what is in the folder, and how it is cut into parts
  probe.py      the linear probe, the measured pace, and the plan that fits in the time
  job.py        the settings and the images together: configurations of trainings, files to go on from
  finish.py     the choice between probe and fine-tuned model, the test, and the report page
  detection.py  the score of the model beside nearest neighbours in its features
  against.py    two methods compared on the same folder: `regmixup finetune --against METHOD`
predictor.py    `rm.Predictor`: calibrated probabilities, and whether to accept the answer
  module.py     the tensor code of a predictor, from pixels to a decision
  calibration.py    temperature, threshold, a promise about errors, and label sets
  export.py     predictors on disk: a folder of weights and JSON, .pt2 and .onnx files
publish.py      a run as a folder for a model hub: `regmixup publish`
  card.py       its model card
"""
