package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The first program prints what its page promises.
func TestHello(t *testing.T) {
	out, err := exec.Command("go", "run", ".").Output()
	if err != nil || strings.TrimSpace(string(out)) != "Hello, Ann" {
		t.Errorf("%q, %v", out, err)
	}
}
