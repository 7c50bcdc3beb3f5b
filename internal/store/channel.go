package store

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// CheckChannel says what is wrong with a channel's name.
func CheckChannel(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("shunt: the channel's name is empty: Channel() returns 1 to 200 bytes")
	case len(name) > 200:
		return fmt.Errorf("shunt: the channel's name %.40q… has %d bytes: at most 200", name, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("shunt: the channel's name %.80q is not UTF-8", name)
	}
	for _, r := range name {
		if r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) {
			return fmt.Errorf("shunt: the channel's name %.80q contains %q: no braces, blanks or control characters",
				name, r)
		}
	}
	return nil
}

// AddChannel lists a channel for operators.
func AddChannel(c *link.Call, channel string) { c.Add("SADD", ChannelsKey, channel) }

// needyAt is how many channels one command looks at, more or less.
const needyAt = 1000

// EachNeedy gives each listed channel that has something which somebody must look after: receivers, living or dead, or
// messages that are due later or leased, outcomes, marks or receipts. often: receivers or leases, of which no hint may
// have told. It ends when give returns false.
func EachNeedy(ctx context.Context, l *link.Link, give func(k *Keys, often bool) bool) error {
	for cursor := "0"; ; {
		c := link.NewCall()
		c.Add("SSCAN", ChannelsKey, cursor, "COUNT", needyAt)
		if err := l.Run(ctx, c); err != nil {
			return err
		}
		var some []*Keys
		for _, name := range page(c.Replies[0], &cursor) {
			if CheckChannel(string(name)) == nil {
				some = append(some, KeysOf(string(name)))
			}
		}
		c = link.NewCall()
		for _, k := range some {
			c.Add("EXISTS", k.Receivers, k.DeadReceivers, k.Leased)
			c.Add("EXISTS", k.Delay, k.Kept, k.Running, k.Receipts)
		}
		if c.Len() > 0 {
			if err := l.Run(ctx, c); err != nil {
				return err
			}
		}
		for i, k := range some {
			often, _ := redis.Int(c.Replies[2*i].Value, nil)
			others, _ := redis.Int(c.Replies[2*i+1].Value, nil)
			if often+others > 0 && !give(k, often > 0) {
				return nil
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}

// AllHints is the pattern of the pub/sub channels on which the hints of all channels are published.
const AllHints = "{*}.delay"

// ChannelOfHint is the channel whose hints are published there.
func ChannelOfHint(key string) (channel string, is bool) {
	channel, begins := strings.CutPrefix(key, "{")
	channel, ends := strings.CutSuffix(channel, "}.delay")
	return channel, begins && ends && CheckChannel(channel) == nil
}
