package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// ledger knows the sums of the files that are done. With a file, FILE.part, it outlives the process.
type ledger struct {
	file    *os.File // nil: in memory only
	entries chan *entry
	quit    chan struct{}
	ended   chan struct{}
	failed  chan struct{} // closed: err is set, and nothing more is written

	err error // the committer's until failed is closed

	mu   sync.Mutex
	sums map[string]sum // by path, on the disk already
}

// entry is a line on its way to the disk.
type entry struct {
	path    string
	sum     sum
	written chan error // of capacity 1
}

// openLedger reads what earlier runs have done. A last line without its end is that of a killed run, and is cut off.
func openLedger(name string) (*ledger, error) {
	l := &ledger{
		entries: make(chan *entry, 64),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
		failed:  make(chan struct{}),
		sums:    make(map[string]sum),
	}
	if name == "" {
		close(l.ended)
		return l, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	good, err := l.read(f)
	if err == nil {
		err = f.Truncate(good)
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.file = f
	go l.commit()
	return l, nil
}

// read returns the length of the whole lines.
func (l *ledger) read(in io.Reader) (good int64, err error) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		path, s, ok := parseLine(line)
		if !ok {
			return good, fmt.Errorf(
				"%.60q is no line of this program's: is the file another one's? Remove it to start afresh",
				line,
			)
		}
		l.sums[path] = s
		good += int64(len(line))
	}
}

func (l *ledger) has(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.sums[path]
	return ok
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sums)
}

// enter returns nil once the line is on the disk.
func (l *ledger) enter(path string, s sum) error {
	if l.file == nil {
		l.mu.Lock()
		l.sums[path] = s
		l.mu.Unlock()
		return nil
	}
	e := &entry{path: path, sum: s, written: make(chan error, 1)}
	select {
	case l.entries <- e:
	case <-l.quit:
	}
	select {
	case err := <-e.written:
		return err
	case <-l.ended: // a handler that shutdown has given up
		return errors.New("the run is over")
	}
}

// commit writes lines and syncs them. It takes all that have come while it was busy with the last ones, since a sync
// costs the same for one line as for many.
func (l *ledger) commit() {
	defer close(l.ended)
	var batch []*entry
	var lines []byte
	for {
		select {
		case e := <-l.entries:
			batch = append(batch[:0], e)
		case <-l.quit:
			return
		}
		for len(l.entries) > 0 {
			batch = append(batch, <-l.entries)
		}
		lines = lines[:0]
		for _, e := range batch {
			lines = appendLine(lines, e.sum, e.path)
		}
		if l.err == nil {
			if l.err = l.write(lines); l.err != nil {
				close(l.failed) // for good: a line after half a line would make both useless
			}
		}
		if l.err == nil {
			l.mu.Lock()
			for _, e := range batch {
				l.sums[e.path] = e.sum
			}
			l.mu.Unlock()
		}
		for _, e := range batch {
			e.written <- l.err
		}
	}
}

func (l *ledger) write(lines []byte) error {
	if _, err := l.file.Write(lines); err != nil {
		return err
	}
	return l.file.Sync()
}

// close ends the committer; what is done stays to be read.
func (l *ledger) close() {
	close(l.quit)
	<-l.ended
	if l.file != nil {
		l.file.Close()
	}
}

// replace puts the manifest in its place as a whole, and only then removes FILE.part.
func (l *ledger) replace(out string, manifest []byte) error {
	tmp := out + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(manifest)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, out)
	}
	if err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(out)); err == nil {
		_ = dir.Sync() // the new name; some systems cannot, and then keep the order by themselves
		dir.Close()
	}
	return os.Remove(l.file.Name())
}

// A line is sha256sum's: the sum, two blanks, the name. A name with a backslash or the end of a line in it is escaped,
// and a backslash before the sum says so.
var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

func appendLine(b []byte, s sum, name string) []byte {
	escaped := escaper.Replace(name)
	if escaped != name {
		b = append(b, '\\')
	}
	b = hex.AppendEncode(b, s[:])
	b = append(b, "  "...)
	b = append(b, escaped...)
	return append(b, '\n')
}

// parseLine is the inverse.
func parseLine(line string) (name string, s sum, ok bool) {
	line, ended := strings.CutSuffix(line, "\n")
	line, escaped := strings.CutPrefix(line, `\`)
	digits, name, parted := strings.Cut(line, "  ")
	if len(digits) != 2*len(s) || !ended || !parted || name == "" {
		return "", s, false
	}
	if _, err := hex.Decode(s[:], []byte(digits)); err != nil {
		return "", s, false
	}
	if escaped {
		name, ok = unescape(name)
		return name, s, ok
	}
	return name, s, true
}

func unescape(name string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '\\' {
			i++
			if i == len(name) {
				return "", false
			}
			switch name[i] {
			case '\\':
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			default:
				return "", false
			}
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
