package store

import (
	"embed"

	"github.com/shuntmq/shunt/internal/link"
)

//go:embed lua/*.lua
var lua embed.FS

// script joins the prelude and the files into one script; what others need stands first.
func script(names ...string) *link.Script { return lean(append([]string{"prelude"}, names...)...) }

// lean is script without the prelude.
func lean(names ...string) *link.Script {
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
	Enter      = script("enter")
	Enqueue    = script("ids", "enqueue")
	Take       = script("take")
	Start      = script("ids", "start")
	Ack        = lean("first", "ack")
	Settle     = script("first", "ids", "leave", "ending", "settle")
	Follow     = script("ids", "leave", "ending", "follow")
	Retry      = script("ids", "leave", "ending", "retry")
	Reject     = script("trim", "ids", "leave", "ending", "reject")
	Promote    = script("promote")
	Register   = script("register")
	Beat       = script("beat")
	Sweep      = script("ids", "ending", "sweep")
	Reap       = script("header", "trim", "ids", "ending", "reap")
	Finish     = script("finish")
	Unregister = script("unregister")
	Supersede  = script("supersede")
	Release    = script("header", "ids", "leave", "release")
	Handover   = script("header", "ids", "handover")
	Yield      = script("yield")
	Revive     = script("ids", "revive")
	Purge      = script("header", "ids", "purge")
	Cancel     = script("ids", "ending", "cancel")
	Postpone   = script("ids", "postpone")
	Wait       = script("ids", "wait")
	Status     = script("status")
)
