package access

import (
	"testing"
	"time"
)

// When a view is believed: by its age, by the feed's proof, by its spell.
func TestViewsAreBelieved(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name       string
		age, proof time.Duration // before now
		hears      bool
		other      bool // the view is of an earlier spell
		believed   bool
	}{
		{"young, nobody hears", 800 * time.Millisecond, time.Hour, false, false, true},
		{"old, nobody hears", time.Second, time.Hour, false, false, false},
		{"old, proved", 30 * time.Second, 100 * time.Millisecond, true, false, true},
		{"old, proved too long ago", 30 * time.Second, time.Second, true, false, false},
		{"old, of an earlier spell", 30 * time.Second, 100 * time.Millisecond, true, true, false},
		{"too old, proved", 2 * time.Minute, 100 * time.Millisecond, true, false, false},
	} {
		var m mirror
		if c.other {
			m.hearing(true)
			m.hearing(false)
		}
		if c.hears && !c.other {
			m.hearing(true)
		}
		v, hints := m.begin()
		v.at = now.Add(-c.age)
		m.put("key", v, hints)
		if c.hears {
			m.hearing(true)
			m.proved(now.Add(-c.proof))
		}
		if _, ok := m.get("key", now); ok != c.believed {
			t.Errorf("%s: believed %v", c.name, ok)
		}
	}
}

// What was asked before a hint is not kept after it.
func TestHintWhileReading(t *testing.T) {
	t.Parallel()
	var m mirror
	v, hints := m.begin()
	m.drop("key")
	m.put("key", v, hints)
	if _, ok := m.get("key", time.Now()); ok {
		t.Error("an old view is kept")
	}
	v, hints = m.begin()
	m.put("key", v, hints)
	if _, ok := m.get("key", time.Now()); !ok {
		t.Error("a new view is not kept")
	}
}

// The views of many namespaces do not pile up.
func TestViewsAreBounded(t *testing.T) {
	t.Parallel()
	var m mirror
	for i := range 3 * maxViews {
		v, hints := m.begin()
		m.put(string(rune(i)), v, hints)
	}
	if len(m.views) > maxViews {
		t.Errorf("%d views", len(m.views))
	}
}
