package shunt

import (
	"context"
	"embed"

	"github.com/shuntmq/shunt/internal/link"
)

//go:embed lua/*.lua
var lua embed.FS

// script joins the files into one script; what others need stands first.
func script(names ...string) *link.Script {
	text := ""
	for _, name := range names {
		b, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		text += string(b)
	}
	return link.NewScript(text)
}

// The scripts; KEYS, ARGV and replies stand above each in its file.
var (
	laterScript      = script("later")
	takeScript       = script("take")
	retryScript      = script("retry")
	rejectScript     = script("trim", "reject")
	promoteScript    = script("promote")
	registerScript   = script("register")
	beatScript       = script("beat")
	sweepScript      = script("sweep")
	reapScript       = script("header", "trim", "reap")
	finishScript     = script("finish")
	unregisterScript = script("unregister")
	supersedeScript  = script("supersede")
	releaseScript    = script("header", "release")
	handoverScript   = script("header", "handover")
	yieldScript      = script("yield")
	reviveScript     = script("revive")
)

// run sends a call and returns the first of its errors, an unknown outcome before others. Scripts that the server has forgotten
// are sent once more, with their text, and nothing else is.
func run(ctx context.Context, l *link.Link, c *link.Call) error {
	if err := l.Do(ctx, c); err != nil {
		return err
	}
	var forgotten []int
	for i, rep := range c.Replies {
		if link.Code(rep.Err) == "NOSCRIPT" {
			forgotten = append(forgotten, i)
		}
	}
	if len(forgotten) > 0 {
		again := c.Only(forgotten)
		if err := l.Do(ctx, again); err != nil {
			return err
		}
		for i, rep := range again.Replies {
			c.Replies[forgotten[i]] = rep
		}
	}
	var first error
	for _, rep := range c.Replies {
		if rep.Err != nil && (first == nil || link.Classify(rep.Err) == link.Unknown) {
			first = rep.Err
		}
	}
	return first
}
