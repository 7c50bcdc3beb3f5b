package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed templates assets
var files embed.FS

// asset is a file that pages load.
type asset struct {
	body []byte
	kind string
}

var (
	assets  = readAssets()
	version = assetVersion()
	pages   = sync.OnceValue(readPages) // for the first page: the command line shows none
)

var kinds = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml"}

func readAssets() map[string]asset {
	as := make(map[string]asset)
	list, _ := files.ReadDir("assets")
	for _, f := range list {
		body, _ := files.ReadFile("assets/" + f.Name())
		if kind := kinds[path.Ext(f.Name())]; kind != "" {
			as[f.Name()] = asset{body, kind}
		}
	}
	return as
}

// assetVersion changes when an asset does, so that browsers may keep them for ever.
func assetVersion() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		_, _ = h.Write(assets[name].body)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// readPages parses each page with the layout around it.
func readPages() map[string]*template.Template {
	layout := template.Must(template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html"))
	all := make(map[string]*template.Template)
	list, _ := files.ReadDir("templates")
	for _, f := range list {
		if name := strings.TrimSuffix(f.Name(), ".html"); name != "layout" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+f.Name()))
		}
	}
	return all
}
