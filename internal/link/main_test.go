package link

import (
	"crypto/tls"
	"fmt"
	"os"
	"testing"

	"github.com/shuntmq/shunt/internal/redisd"
	"github.com/shuntmq/shunt/internal/redistest"
)

// trusted is a certificate that the tests' process trusts as it trusts the system's.
var trusted tls.Certificate

func TestMain(m *testing.M) {
	var err error
	if trusted, err = redisd.SelfSigned(); err == nil && redisd.CanTrust {
		err = redisd.Trust(trusted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(redistest.Main(m))
}

// patientCall makes a call that waits for a server that is away.
func patientCall() *Call {
	c := NewCall()
	c.KeepWhileDown = true
	return c
}
