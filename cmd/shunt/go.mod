module github.com/shuntmq/shunt/cmd/shunt

go 1.25.0

replace github.com/shuntmq/shunt => ../..

require (
	github.com/BurntSushi/toml v1.5.0
	github.com/gomodule/redigo v1.9.3
	github.com/mattn/go-runewidth v0.0.16
	github.com/shuntmq/shunt v0.0.0-00010101000000-000000000000
	github.com/spf13/cobra v1.10.2
	golang.org/x/sync v0.22.0
	golang.org/x/term v0.35.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180228061459-e0a39a4cb421 // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	github.com/rivo/uniseg v0.2.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.36.0 // indirect
)
