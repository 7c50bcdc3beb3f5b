package page

import (
	"context"
	"errors"

	"github.com/shuntmq/shunt"
)

var (
	ann *shunt.Kind[Email]

	errNoSuchMailbox, errBusy, errClosedForTheNight = errors.New(""), errors.New(""), errors.New("")
)

func send(context.Context, string) error { return nil }

func signUp(*shunt.Queue, string) {}
