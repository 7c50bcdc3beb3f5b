package shunt

import (
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
