package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

// confirm asks, unless --yes was given. Where nobody can be asked it is an error.
func (a *app) confirm(ctx context.Context, format string, args ...any) error {
	if a.yes {
		return nil
	}
	what := printable(fmt.Sprintf(format, args...))
	if !a.asks {
		return usage("this would %s: give --yes, for nobody can be asked here", what)
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", what)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return errInterrupted
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return errors.New("nothing was changed")
}
