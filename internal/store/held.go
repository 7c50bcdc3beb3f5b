package store

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// AddHeld asks how many of some doing lists have something.
func AddHeld(c *link.Call, lists ...string) { c.Add("EXISTS", args(lists)...) }

// HeldReply reads the reply to AddHeld.
func HeldReply(rep link.Reply) (n int, err error) { return redis.Int(rep.Value, rep.Err) }

// NonEmpty are those of some lists that are there, asked one by one in a pipeline.
func NonEmpty(ctx context.Context, l *link.Link, lists []string) (some []string, err error) {
	c := link.NewCall()
	c.Repeats = true
	for _, list := range lists {
		c.Add("EXISTS", list)
	}
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	for i, rep := range c.Replies {
		if n, _ := redis.Int(rep.Value, nil); n > 0 {
			some = append(some, lists[i])
		}
	}
	return some, nil
}

// CountNonEmpty is how many of some lists are there, by one command.
func CountNonEmpty(ctx context.Context, l *link.Link, lists []string) (int, error) {
	c := link.NewCall()
	c.Repeats = true
	AddHeld(c, lists...)
	if err := l.Run(ctx, c); err != nil {
		return 0, err
	}
	return HeldReply(c.Replies[0])
}
