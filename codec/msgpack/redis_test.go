package msgpack_test

import (
	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// serve starts the Redis of an Example.
func serve() (*redis.Pool, func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	pool, err := shunt.NewPool("redis://" + m.Addr())
	if err != nil {
		panic(err)
	}
	return pool, func() { pool.Close(); m.Close() }
}
