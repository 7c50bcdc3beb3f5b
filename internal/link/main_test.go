package link

import (
	"os"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patientCall makes a call that waits for a server that is away.
func patientCall() *Call {
	c := NewCall()
	c.KeepWhileDown = true
	return c
}
