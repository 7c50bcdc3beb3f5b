package page

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/shuntmq/shunt"
)

var (
	client *river.Client[pgx.Tx]
	dbPool *pgxpool.Pool
	ann    *shunt.Kind[Email]
)

func send(context.Context, string) error { return nil }
