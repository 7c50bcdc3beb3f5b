//go:build snippets

// Package snippets compiles the Go of the documentation: see snippets_test.go. The imports below keep in go.mod what
// only the documentation imports.
package snippets

import (
	_ "github.com/gomodule/redigo/redis"
	_ "github.com/hibiken/asynq"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/riverdriver/riverpgxv5"
	_ "github.com/riverqueue/river/rivermigrate"
	_ "github.com/riverqueue/river/rivertest"
	_ "github.com/riverqueue/river/rivertype"

	_ "github.com/shuntmq/shunt/recur"
	_ "github.com/shuntmq/shunt/shunttest"
)
