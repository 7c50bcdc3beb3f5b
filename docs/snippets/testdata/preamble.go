package page

import (
	"context"
	"database/sql"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

var (
	ctx  context.Context
	q    *shunt.Queue
	pool *redis.Pool
	err  error
	t    *testing.T
	db   *sql.DB
)
