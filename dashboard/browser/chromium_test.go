package browser

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// chromium is the one browser of all tests. Each test has a tab with cookies of its own.
var chromium struct {
	once sync.Once
	path string
	ctx  context.Context
	end  func()
	err  error
}

// start gives the browser, which the first test starts.
func start(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(func() {
		for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
			if chromium.path == "" && name != "" {
				chromium.path, _ = exec.LookPath(name)
			}
		}
		if chromium.path == "" {
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium.path),
			chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"),
			// Nothing but the test's own server is to be reached.
			chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
		all, stop := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, cancel := chromedp.NewContext(all)
		chromium.ctx, chromium.end = ctx, func() {
			_ = chromedp.Cancel(ctx)
			cancel()
			stop()
		}
		chromium.err = chromedp.Run(ctx)
	})
	switch {
	case chromium.path == "" && os.Getenv("REQUIRE_BROWSER") != "":
		t.Fatal("there is no chromium in PATH: install it, or name it by CHROMIUM")
	case chromium.path == "":
		t.Skip("there is no chromium in PATH, and CHROMIUM names none")
	case chromium.err != nil:
		t.Fatal(chromium.err)
	}
	return chromium.ctx
}
