package gmq

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A client reads the answer to its mistake, also where it goes on writing for a while: gmq does not reset it before.
func TestLingerBehindTheListener(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	client, err := net.Dial("tcp", s.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "no object"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(client); err != nil || len(answer) == 0 {
		t.Fatalf("%q %v", answer, err)
	}
	for range 3 { // well within lingerFor
		if _, err := io.WriteString(client, "more"); err != nil {
			t.Fatalf("a write behind the answer: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
