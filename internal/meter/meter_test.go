package meter

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every duration lies in the bucket that ends beyond it, and not beyond that before.
func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-1, 1<<62).Draw(t, "d") >> rapid.IntRange(0, 62).Draw(t, "shift"))
		b := Bucket(d)
		if b < 0 || b >= Buckets || b < Buckets-1 && d >= Bound(b) || b > 0 && d < Bound(b-1) {
			t.Errorf("%v lies in bucket %d", d, b)
		}
	})
}

// Sums are read as they were written, and added to what is there.
func TestRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s, twice Sums
		for i := range s {
			s[i] = rapid.SampledFrom([]uint64{0, 1, 127, 128, 1 << 20, 1 << 50}).Draw(t, "n")
		}
		b := append(s.Append(nil), 200, 1) // of a number that is not known here
		for range 2 {
			if err := twice.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		for i := range s {
			if twice[i] != 2*s[i] {
				t.Fatalf("%v, twice %v", s, twice)
			}
		}
		if err := new(Sums).Read(append(b, 3)); err == nil {
			t.Error("what is cut off is read")
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Sums
		if s.Read(b) == nil && (again.Read(s.Append(nil)) != nil || again != s) {
			t.Errorf("%v, again %v", s, again)
		}
	})
}

// Nothing that is counted while the sums are taken is lost, or given twice.
func TestBook(t *testing.T) {
	var b Book
	const n, each = 8, 20_000
	var all, done sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range each {
				b.Count(string(rune('a'+i%3)), func(to Adder) {
					to.Add(Acked, 2)
					to.Took(Wait, time.Second)
				})
			}
		})
	}
	var sums Sums
	take := func() { b.Take(func(_ string, s *Sums) { sums.AddAll(s) }) }
	end := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				take()
			}
		}
	})
	all.Wait()
	close(end)
	done.Wait()
	take()
	if sums[Acked] != 2*n*each || sums[Wait+Bucket(time.Second)] != n*each {
		t.Errorf("%d, and %d durations", sums[Acked], sums[Wait+Bucket(time.Second)])
	}
	(*Book)(nil).Count("a", nil)
}
