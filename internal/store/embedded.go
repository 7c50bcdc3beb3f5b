package store

import (
	_ "embed"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// This file is for the test kit, which has its Redis inside the test's process and asks it through a pool. Its script
// stands beside it and not in lua/, for no other Redis runs it.

// Left says what channels have left.
type Left int

// What channels have left; embedded.lua has the numbers.
const (
	NothingLeft Left = iota
	SomeLeft         // something is ready, suspect or being handled
	DelayedLeft      // only delayed messages
)

//go:embed embedded.lua
var leftLua string

var left = redis.NewScript(0, leftLua)

// WhatIsLeft says what the channels have left. With forward, if that is only delayed messages, it brings all due times
// forward, by as much as makes the first one due.
func WhatIsLeft(p *redis.Pool, channels []string, forward bool) (Left, error) {
	c := p.Get()
	defer c.Close()
	n, err := redis.Int(left.Do(c, redis.Args{time.Now().UnixMilli(), forward}.AddFlat(channels)...))
	return Left(n), err
}

// Delayed are the elements in delay, and when each is due.
func Delayed(p *redis.Pool, k *Keys) (map[string]time.Time, error) {
	c := p.Get()
	defer c.Close()
	scores, err := redis.Float64Map(c.Do("ZRANGE", k.Delay, 0, -1, "WITHSCORES"))
	all := make(map[string]time.Time, len(scores))
	for raw, score := range scores {
		all[raw] = time.UnixMilli(int64(score))
	}
	return all, err
}

// Copy copies what is ready or delayed in a channel, but for one message, from one Redis to another, in order. The
// records of taken ids go with it, except where the other Redis has one.
func Copy(to, from *redis.Pool, k *Keys, except string) error {
	source, target := from.Get(), to.Get()
	defer source.Close()
	defer target.Close()
	ready, err := redis.Strings(source.Do("LRANGE", k.Prepare, 0, -1))
	if err != nil {
		return err
	}
	for _, raw := range slices.Backward(ready) { // the one to be taken next is the last
		if isNot(except, raw) {
			if _, err := target.Do("LPUSH", k.Prepare, raw); err != nil {
				return err
			}
		}
	}
	later, err := Delayed(from, k)
	if err != nil {
		return err
	}
	for raw, due := range later {
		if isNot(except, raw) {
			if _, err := target.Do("ZADD", k.Delay, strconv.FormatInt(due.UnixMilli(), 10), raw); err != nil {
				return err
			}
		}
	}
	return CopyIDs(to, from, k)
}

// CopyIDs copies the records of taken ids from one Redis to another, except where the other has one.
func CopyIDs(to, from *redis.Pool, k *Keys) error {
	source, target := from.Get(), to.Get()
	defer source.Close()
	defer target.Close()
	ids, err := redis.StringMap(source.Do("HGETALL", k.IDs))
	for id, record := range ids {
		if _, err := target.Do("HSETNX", k.IDs, id, record); err != nil {
			return err
		}
	}
	return err
}

// isNot says whether an element is not that of a serial.
func isNot(serial, raw string) bool { return SerialOf([]byte(raw)).String() != serial }
