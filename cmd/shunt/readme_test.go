package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// The tour of the README runs as it stands there.
func TestTour(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, _ := strings.Cut(string(page), "## A tour")
	_, tour, _ = strings.Cut(tour, "```sh\n")
	tour, _, ok := strings.Cut(tour, "```")
	if !ok {
		t.Fatal("there is no tour")
	}
	s := redistest.Start(t)
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "shunt"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("sh", "-e", "-c", strings.Replace(tour, "redis://localhost:6379", s.URL(), 1))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"delivered 1000 messages", "it waits already", "cancelled 10 messages", "exported 992",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in: %s", want, out)
		}
	}
}

// What the README shows of doctor is what it prints.
func TestReadmeDoctor(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "doctor.golden"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "```\n$ shunt doctor\n")
	shown, _, ok := strings.Cut(shown, "```")
	if !ok || !strings.HasPrefix(string(want), "$ shunt doctor\n"+golden(shown)+"= 4\n") {
		t.Errorf("it does not print\n%s", golden(shown))
	}
}
