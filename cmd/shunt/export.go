package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// exported are the states of an export, in the order in which a message moves: so one that moves is met again rather
// than missed.
var exported = []shunt.State{shunt.StateDelay, shunt.StateSuspect, shunt.StatePrepare, shunt.StateDead}

// maxSeen bounds how many serials an export remembers, so that it writes none twice.
const maxSeen = 1 << 20

// export writes a channel.
type export struct {
	a       *app
	channel string
	file    string
	from    string
	resume  bool

	page bytes.Buffer // what was written since the last place: it goes out as a whole, so that --from doubles nothing
	out  *os.File     // nil: standard output
	seen map[string]struct{}
	n    int
}

func exportCommands(a *app) []*cobra.Command {
	var x export
	out := &cobra.Command{
		Use: "export CHANNEL", Short: "Write all that waits in a channel, and its dead messages, as JSON lines",
		Long: `Write all that waits in a channel, and its dead messages, as JSON lines. Nothing is removed.

A payload that is UTF-8 is written as text, any other as {"base64": …}. With --file an export that was
interrupted goes on by --resume. On standard output it says the --from that goes on.

What receivers have in hand is not in it, and an export of a channel that is at work is of no one moment: shut
its receivers down before. Nor is what is kept of messages that are over.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			x.a, x.channel = a, args[0]
			return x.run(cmd.Context())
		},
	}
	out.Flags().StringVarP(&x.file, "file", "f", "", "the file to write, which is not there yet")
	out.Flags().BoolVar(&x.resume, "resume", false, "go on with the --file of an interrupted export")
	out.Flags().StringVar(&x.from, "from", "", "go on where an export to standard output was interrupted")

	return []*cobra.Command{out, importCommand(a)}
}

func (x *export) run(ctx context.Context) (err error) {
	if x.resume && x.file == "" || x.from != "" && x.file != "" {
		return usage("--resume goes with --file, and --from with standard output")
	}
	q, err := x.a.open()
	if err != nil {
		return err
	}
	stats, err := q.Stats(ctx, x.channel)
	if err != nil {
		return err
	}
	total := 0
	for _, s := range exported {
		total += stats[s].Count
	}
	if total == 0 {
		if err := x.a.known(ctx, x.channel); err != nil {
			return err
		}
	}
	x.seen = make(map[string]struct{})
	if x.file != "" {
		if err := x.openFile(); err != nil {
			return err
		}
		defer func() {
			if e := x.out.Close(); err == nil {
				err = e
			}
		}()
	}
	p := x.a.progress("export")
	p.part = func() float64 { return float64(x.n) / float64(max(total, 1)) }
	err = x.pages(ctx, p)
	p.end()
	if err == nil {
		err = x.write(record{V: 1, End: &x.n})
	}
	if err == nil {
		err = x.flush()
	}
	if err != nil {
		if !isUsage(err) && x.from != "" {
			again := "to go on: shunt export " + quoted(x.channel) + x.a.where()
			if x.file != "" {
				x.a.say("%s --file %s --resume", again, quoted(x.file))
			} else {
				x.a.say("%s --from %s", again, x.from)
			}
		}
		return err
	}
	if len(x.seen) == maxSeen {
		x.a.say("it is large: a message that moved meanwhile may be in it twice; import takes it twice, too")
	}
	if hand := stats[shunt.StateDoing].Count + stats[shunt.StateLeased].Count; hand > 0 {
		x.a.say("%s in hand when it began and may not be in the export", were(hand))
	}
	if x.file == "" {
		x.a.say("exported %s of %s", messages(x.n), x.channel)
		return nil
	}
	if x.a.json {
		return x.a.document(map[string]any{"channel": x.channel, "file": x.file, "messages": x.n})
	}
	x.a.tell("exported %s of %s to %s", messages(x.n), printable(x.channel), printable(x.file))
	return nil
}

func were(n int) string {
	if n == 1 {
		return "1 message was"
	}
	return fmt.Sprintf("%d messages were", n)
}

// pages writes page after page, each with the place where the next one begins.
func (x *export) pages(ctx context.Context, p *progress) error {
	begin, from := exported[0], ""
	if x.from != "" {
		name, next, ok := strings.Cut(x.from, ":")
		begin, from = shunt.State(name), next
		if !ok || !slices.Contains(exported, begin) {
			return usage("--from %.60q is not what an export said", x.from)
		}
	}
	for i := slices.Index(exported, begin); i < len(exported); i++ {
		o := shunt.BrowseOptions{Channel: x.channel, State: exported[i], Limit: 1000, Payload: -1, From: from}
		for from = ""; ; {
			page, err := x.a.queue.Browse(ctx, o)
			if err != nil {
				return err
			}
			for _, e := range page.Entries {
				if _, twice := x.seen[e.Serial]; twice && e.Serial != "" {
					continue
				}
				if err := x.write(recordOf(&e)); err != nil {
					return err
				}
				x.see(e.Serial)
				p.add(1)
			}
			next := ""
			if page.Next != "" {
				next = string(exported[i]) + ":" + page.Next
			} else if i+1 < len(exported) {
				next = string(exported[i+1]) + ":"
			}
			if next != "" {
				if err := errors.Join(x.write(record{V: 1, Next: next}), x.flush()); err != nil {
					return err
				}
				x.from = next
			}
			if o.From = page.Next; page.Next == "" {
				break
			}
		}
	}
	return nil
}

func (x *export) see(serial string) {
	x.n++
	if serial != "" && len(x.seen) < maxSeen {
		x.seen[serial] = struct{}{}
	}
}

func (x *export) write(r record) error {
	e := json.NewEncoder(&x.page)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

func (x *export) flush() error {
	defer x.page.Reset()
	if x.out == nil {
		_, err := x.a.out.Write(x.page.Bytes())
		return err
	}
	_, err := x.out.Write(x.page.Bytes())
	return errors.Join(err, x.out.Sync())
}

// openFile makes the file, or goes on behind the last whole page of an interrupted export.
func (x *export) openFile() (err error) {
	mode := os.O_RDWR | os.O_CREATE | os.O_EXCL
	if x.resume {
		mode = os.O_RDWR
	}
	x.out, err = os.OpenFile(x.file, mode, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: --resume goes on with it, or give another name", x.file)
	} else if err != nil {
		return err
	}
	if !x.resume {
		return nil
	}
	good, at, n := int64(0), int64(0), 0
	var page []string // serials since the last place
	in := bufio.NewReaderSize(x.out, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF { // what has no end of line was not written whole
			break
		}
		var r record
		if err == nil {
			r, err = parseRecord(line)
		}
		if err == nil && r.Channel != "" && r.Channel != x.channel {
			err = fmt.Errorf("it is an export of channel %q", r.Channel)
		}
		if err == nil && r.End != nil {
			err = errors.New("it is whole: nothing is left to do")
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", x.file, err), x.out.Close())
		}
		at += int64(len(line))
		if r.Next == "" {
			page = append(page, r.Serial)
			continue
		}
		for _, serial := range page {
			x.see(serial)
		}
		good, x.from, n, page = at, r.Next, x.n, page[:0]
	}
	x.n = n
	if err := x.out.Truncate(good); err != nil {
		return err
	}
	_, err = x.out.Seek(good, io.SeekStart)
	return err
}
