package trial

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a process has said is there whatever becomes of it, and only what was said wholly.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	open := func(by string) *Ledger {
		f, err := os.OpenFile(filepath.Join(dir, by+".ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return NewLedger(by, f)
	}
	a, b := open("a"), open("b")
	at := time.Unix(5, 7)
	want := []Entry{
		{
			At:      at,
			By:      "a",
			Op:      Handle,
			Phase:   Invoke,
			ID:      "x \"y\"\tz\n",
			Serial:  "s",
			Attempt: 3,
			N:       4,
			Due:     at.Add(1),
			Note:    "\x00\xff",
		},
		{At: at.Add(1), By: "b", Op: Enqueue, Phase: OK},
		{At: at.Add(2), By: "w", Op: Fault, Phase: Info, N: 1},
	}
	b.Say(want[1])
	a.Say(want[0], want[2])
	if err := os.WriteFile(filepath.Join(dir, "c.ledger"), []byte(want[1].String()[:20]), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Read(os.DirFS(dir))
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	for i, e := range got {
		if e.String() != want[i].String() || !e.At.Equal(want[i].At) {
			t.Errorf("%v, want %v", e, want[i])
		}
	}
	if _, err := parseEntry("1\ta\tb"); err == nil {
		t.Error("a line with fields missing was taken")
	}
}
