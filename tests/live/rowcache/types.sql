-- SPDX-License-Identifier: BSD-3-Clause
CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(50)) CHARSET utf8mb4;
INSERT INTO item SELECT seq, CONCAT('name', seq) FROM seq_1_to_2000;
CREATE TABLE types (id BIGINT UNSIGNED PRIMARY KEY, d DECIMAL(40,10), z INT(8) ZEROFILL, f DOUBLE,
    b VARBINARY(20), t TEXT, bits BIT(12), day DATE, at DATETIME(3), ts TIMESTAMP NULL, n INT NULL,
    e ENUM('a','b'), j JSON) CHARSET utf8mb4;
INSERT INTO types VALUES (18446744073709551615, '123456789012345678901234567890.0123456789', 42, 1.5e100,
    x'00ff0a', 'Grüße "q" \\ \n 😀', b'101', '2026-02-03', '2026-02-03 04:05:06.789', NULL, NULL, 'b',
    '{"k": [1]}');
CREATE TABLE pair (a INT, b VARCHAR(20), v INT, UNIQUE KEY byv (v), PRIMARY KEY (a, b)) CHARSET utf8mb4;
INSERT INTO pair VALUES (1, 'x:y %z', 7), (1, 'Upper', 8);
CREATE TABLE flags (a INT, f BIT, b BIT(12), v INT, PRIMARY KEY (a, f, b));
INSERT INTO flags VALUES (1, b'1', 65, 7), (1, b'0', 0, 8);
CREATE TABLE nokey (a INT);
