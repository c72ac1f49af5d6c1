-- SPDX-License-Identifier: BSD-3-Clause
CREATE TABLE item (id INT PRIMARY KEY, v INT);
INSERT INTO item SELECT seq, seq FROM seq_1_to_200000;
CREATE TABLE parent (id INT PRIMARY KEY, v INT);
INSERT INTO parent SELECT seq, seq FROM seq_1_to_200000;
CREATE TABLE child (id INT PRIMARY KEY, parent INT NOT NULL, FOREIGN KEY (parent) REFERENCES parent (id));
INSERT INTO child SELECT seq, seq * 100 FROM seq_1_to_1000;
CREATE TABLE code (id VARCHAR(20) PRIMARY KEY, v INT);
INSERT INTO code SELECT CONCAT('c', seq), seq FROM seq_1_to_100;
CREATE TABLE low (id INT PRIMARY KEY, v INT);
INSERT INTO low SELECT seq, seq FROM seq_1_to_10;
