# Rscript make_r.R: tables as R writes them, read in tests/files/test_other_writers.py.
set.seed(1)
scores <- round(matrix(rnorm(36), 12), 6)
rows <- data.frame(p_ant = scores[, 1], p_bee = scores[, 2], p_cat = scores[, 3])
rows$id <- sprintf("%03d", 0:11)
rows$note <- rep(c('say "hi",\nthere', "a;b", "", NA), 3)
rows$day <- as.Date("2026-11-01") + 0:11
rows$count <- 2^53 - 0:11
rows$label <- c("ant", "bee", "cat", NA, rep(c("ant", "bee"), 4))
write.csv(rows, "r.csv")
write.csv2(rows, "r2.csv", row.names = FALSE)
write.table(rows, "r.tsv", sep = "\t", row.names = FALSE, qmethod = "double")
