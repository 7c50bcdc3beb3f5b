//go:build unix

package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The test binary is also the child: SANDBOX_TEST names the protocol that it speaks. The first word of a payload says
// what the child does.
func init() {
	mode := os.Getenv("SANDBOX_TEST")
	if mode == "" {
		return
	}
	go func() { // a test that hangs must leave nothing behind on systems without a death signal
		time.Sleep(2 * time.Minute)
		os.Exit(9)
	}()
	switch mode {
	case "lines":
		linesChild(false)
	case "lines-stays": // at the end of its standard input
		linesChild(true)
		fmt.Fprintln(os.Stderr, "staying", os.Getpid())
		hang()
	case "lines-term": // ends at SIGTERM, and not before
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		linesChild(false)
		<-terms
		fmt.Fprintln(os.Stderr, "terminated", os.Getpid())
	case "exec":
		payload, _ := io.ReadAll(os.Stdin)
		execChild(string(payload))
	case "exec-streams":
		io.Copy(os.Stdout, os.Stdin)
	case "exec-deaf": // to its standard input
		fmt.Print("deaf")
	case "dies":
		fmt.Fprintln(os.Stderr, "no module named handler")
		os.Exit(1)
	case "sleep":
		hang()
	}
	os.Exit(0)
}

// hang is for ever; a channel that nothing sends on would be a deadlock that the runtime sees.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// helper is a Pool of the test binary.
func helper(mode string, set ...func(*Pool)) *Pool {
	p := &Pool{Command: []string{os.Args[0]}, Children: 1, Grace: 5 * time.Second,
		// The race detector would have each child sleep for a second at its exit.
		Env: append(os.Environ(), "SANDBOX_TEST="+mode, "GORACE=atexit_sleep_ms=0")}
	if strings.HasPrefix(mode, "exec") {
		p.Protocol = Exec
	}
	for _, f := range set {
		f(p)
	}
	return p
}

// grandchild starts a process in the child's group, which holds the child's pipes open.
func grandchild(ownGroup bool) int {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "SANDBOX_TEST=sleep")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if ownGroup {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	return c.Process.Pid
}

func execChild(payload string) {
	word, rest, _ := strings.Cut(payload, " ")
	switch word {
	case "env":
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "SHUNT_") {
				fmt.Println(e)
			}
		}
	case "exit":
		code, _ := strconv.Atoi(rest)
		fmt.Fprintln(os.Stderr, "exits with", code)
		os.Exit(code)
	case "both": // more than a pipe holds, both ways
		fmt.Print(rest)
	default:
		misbehave(word, rest)
		fmt.Print(payload)
	}
}

func linesChild(stays bool) {
	terms := make(chan os.Signal, 1)
	if stays {
		signal.Ignore(syscall.SIGTERM)
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m request
		if err := json.Unmarshal(line, &m); err != nil {
			panic(err)
		}
		say := func(format string, args ...any) {
			fmt.Fprintf(os.Stdout, `{"n":%d,`+format+"}\n", append([]any{m.N}, args...)...)
		}
		word, rest, _ := strings.Cut(string(m.Payload), " ")
		switch word {
		case "pid":
			say(`"ok":true,"result":"%d"`, os.Getpid())
		case "request":
			say(`"ok":true,"result":%q`, strings.TrimSpace(string(line)))
		case "say": // a verdict
			say("%s", rest)
		case "print": // a line of any form
			fmt.Println(rest)
		case "extra":
			fmt.Printf(`{"n":%d,"ok":true}`+"\nstray\n", m.N)
		case "long":
			n, _ := strconv.Atoi(rest)
			say(`"ok":true,"result":"%s"`, strings.Repeat("x", n))
		case "finish": // the message, after SIGTERM
			signal.Notify(terms, syscall.SIGTERM)
			fmt.Fprintln(os.Stderr, "hanging", os.Getpid())
			<-terms
			say(`"ok":true,"result":"finished"`)
			return
		case "parent": // of a grandchild
			say(`"ok":true,"result":"%d"`, grandchild(rest == "apart"))
		case "leave": // after the answer, and take a while to end
			say(`"ok":true`)
			time.Sleep(100 * time.Millisecond)
			return
		case "mute":
			os.Stdout.Close()
			hang()
		default:
			misbehave(word, rest)
			result, _ := json.Marshal(m.Payload)
			say(`"ok":true,"result_base64":%s`, result)
		}
	}
}

// misbehave does what both kinds of children can.
func misbehave(word, rest string) {
	switch word {
	case "crash":
		fmt.Fprintln(os.Stderr, "first line\nabout to crash", rest)
		os.Exit(3)
	case "hang":
		fmt.Fprintln(os.Stderr, "hanging", os.Getpid())
		hang()
	case "ignore": // SIGTERM, and everything else
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "hanging", os.Getpid())
		hang()
	case "stderr":
		n, _ := strconv.Atoi(rest)
		for range n / 64 {
			os.Stderr.WriteString(strings.Repeat("e", 63) + "\n")
		}
	case "flood":
		for {
			os.Stdout.WriteString(strings.Repeat("o", 4096))
		}
	case "parent-crash":
		fmt.Fprintln(os.Stderr, "grandchild", grandchild(rest == "apart"))
		os.Exit(4)
	case "parent-hang":
		fmt.Fprintln(os.Stderr, "grandchild", grandchild(false))
		hang()
	}
}
