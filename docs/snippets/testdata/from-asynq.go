package page

import (
	"context"

	"github.com/shuntmq/shunt"
)

type Report struct{}

var report = shunt.Define("default", func(context.Context, Report) error { return nil })

func send(context.Context, string) error { return nil }

func signUp(*shunt.Queue, string) {}
