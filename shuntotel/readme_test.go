package shuntotel

import (
	"os"
	"strings"
	"testing"
)

// The README names all that a user may look for in a backend.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ms := newInstrumentation(Options{}).meters
	names := []string{string(attemptKey), string(recoveriesKey), string(typeKey), string(idKey), string(verdictKey),
		string(failedKey), ms.sent.Name(), ms.operation.Name(), ms.consumed.Name(), ms.process.Name(), "panic"}
	for _, f := range failures {
		names = append(names, f.name)
	}
	for _, kv := range enqueueing.attributes("orders") {
		if name := string(kv.Key); name != "messaging.operation.type" { // stands beside messaging.operation.name
			names = append(names, name)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
