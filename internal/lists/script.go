package lists

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
	Later      = script("later")
	Take       = script("take")
	Retry      = script("retry")
	Reject     = script("trim", "reject")
	Promote    = script("promote")
	Register   = script("register")
	Beat       = script("beat")
	Sweep      = script("sweep")
	Reap       = script("header", "trim", "reap")
	Finish     = script("finish")
	Unregister = script("unregister")
	Supersede  = script("supersede")
	Release    = script("header", "release")
	Handover   = script("header", "handover")
	Yield      = script("yield")
	Revive     = script("revive")
)
