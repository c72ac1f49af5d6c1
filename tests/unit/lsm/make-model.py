#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""make-model - what test-trees.c checks trees.c with: a model and LightGBM's own answers.

  make-model.py DIRECTORY [SEED [TREES [LEAVES]]]

Writes DIRECTORY/model.txt, two models one behind the other, and DIRECTORY/answers.txt: a line
for each row, 18 features, then score and probability of each model, as hexadecimal doubles.
Needs lightgbm; the tree holds what seed 1 with 6 trees of 8 leaves made."""
import sys

import lightgbm
import numpy


def main():
    directory = sys.argv[1]
    seed, trees, leaves = ([int(a) for a in sys.argv[2:]] + [1, 6, 8][len(sys.argv) - 2:])
    random = numpy.random.default_rng(seed)
    rows = random.gamma(.5, 20, (4000, 18))
    rows[random.random(rows.shape) < .3] = 0
    rows[random.random(rows.shape) < .02] = numpy.nan  # half of the columns have none
    rows[:, :9] = numpy.nan_to_num(rows[:, :9])
    truth = numpy.nan_to_num(rows)
    boosters = []
    with open(directory + "/model.txt", "w") as file:
        for step in range(2):
            label = truth[:, step] + truth[:, 12] * random.random(4000) > 15
            parameters = {"objective": "binary", "num_leaves": leaves, "learning_rate": .05,
                          "bagging_fraction": .8, "bagging_freq": 1, "feature_fraction": .9,
                          "seed": seed, "deterministic": True, "num_threads": 1,
                          "verbosity": -1, "zero_as_missing": step == 1}
            booster = lightgbm.train(parameters, lightgbm.Dataset(rows, label),
                                     num_boost_round=trees)
            text = booster.model_to_string()
            boosters.append(lightgbm.Booster(model_str=text))  # as read from the file
            file.write(text[:text.index("end of trees")] + "end of trees\n\n")
    probe = numpy.concatenate([rows[:60], random.normal(0, 30, (40, 18)),
                               numpy.zeros((1, 18)), numpy.full((1, 18), numpy.nan),
                               numpy.full((1, 18), 1e-36), numpy.full((1, 18), -1e300)])
    answers = [kind for booster in boosters
               for kind in (booster.predict(probe, raw_score=True, num_threads=1),
                            booster.predict(probe, num_threads=1))]
    with open(directory + "/answers.txt", "w") as file:
        for i, row in enumerate(probe):
            numbers = list(row) + [answer[i] for answer in answers]
            file.write(" ".join(float(x).hex() for x in numbers) + "\n")


main()
