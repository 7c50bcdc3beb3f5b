package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
)

// Certificate is read from two files, and again by Load.
type Certificate struct {
	CertFile, KeyFile string // PEM; required

	now atomic.Pointer[tls.Certificate]
}

// Load reads the files. On an error what was read before stays in use.
func (c *Certificate) Load() error {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("serve: certificate %s: %w", c.CertFile, err)
	}
	c.now.Store(&pair)
	return nil
}

func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := c.now.Load(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("serve: the certificate was not loaded")
}
