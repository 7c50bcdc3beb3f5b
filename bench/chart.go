package main

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A chart is as wide as a README, with twice its pixels for screens that have them.
const (
	chartWidth = 860 * vg.Inch / 96
	chartDPI   = 192
)

var (
	accent = color.RGBA{0xc6, 0x30, 0x2b, 0xff} // shunt
	soft   = color.RGBA{0xe3, 0x9a, 0x95, 0xff} // its variants
	dark   = color.RGBA{0x3a, 0x46, 0x53, 0xff} // the limit
	grey   = color.RGBA{0xa6, 0xb0, 0xbb, 0xff} // all others
	rule   = color.RGBA{0xe3, 0xe6, 0xea, 0xff}
)

func colorOf(system string) color.Color {
	switch {
	case system == "shunt":
		return accent
	case strings.HasPrefix(system, "shunt"):
		return soft
	case system == reference:
		return dark
	}
	return grey
}

// drawCharts draws those for which there are figures.
func drawCharts(dir string, r *report) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	var errs []error
	drawn := 0
	for _, c := range []struct {
		file   string
		height vg.Length
		panels []*plot.Plot
		unit   string // of the panels' one axis, where they have one
	}{
		{"rates.png", 2.3 * vg.Inch, []*plot.Plot{
			bars(r, "process", "Handled: thousand messages a second"),
			bars(r, "enqueue", "Enqueued, one a call: thousand messages a second")}, ""},
		{"wake.png", 2.5 * vg.Inch, []*plot.Plot{
			spans(r, "wake-p50", "wake-p99", "Idle, then one message: ms from the call that enqueues it to its "+
				"handler (● median, ○ 99th percentile)")}, ""},
		{"growth.png", 2.4 * vg.Inch, []*plot.Plot{
			lines(r, "backlog-", "Messages in the backlog"), lines(r, "workers-", "Workers"),
			lines(r, "channels-", "Channels"), lines(r, "processes-", "Processes")}, "thousand messages a second"},
	} {
		if c.panels = slices.DeleteFunc(c.panels, func(p *plot.Plot) bool { return p == nil }); len(c.panels) > 0 {
			if c.unit != "" {
				sameScale(c.panels, c.unit)
			}
			errs = append(errs, save(filepath.Join(dir, c.file), c.height, c.panels))
			drawn++
		}
	}
	if drawn == 0 {
		return errors.New(
			"-chart: there are no figures for any chart: they need process, enqueue, wake or the axes of growth",
		)
	}
	return errors.Join(errs...)
}

func save(file string, height vg.Length, panels []*plot.Plot) error {
	img := vgimg.NewWith(vgimg.UseWH(chartWidth, height), vgimg.UseDPI(chartDPI))
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: 16, PadTop: 6, PadBottom: 6, PadLeft: 8, PadRight: 8}
	for i, c := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(img))[0] {
		panels[i].Draw(c)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(f)
	return errors.Join(err, f.Close())
}

// panel is a plot without ornament.
func panel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size, p.Title.TextStyle.Font.Weight = 10, 1
	p.Title.Padding = 6
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.LineStyle.Width, a.LineStyle.Color = 0, rule
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 9.5, 9.5
		a.Padding = 2
	}
	return p
}

// bySystem is a measure's rows, the best at the top of the chart, which is where the last one goes.
func bySystem(r *report, measure string) (rows []*row) {
	for _, w := range r.Rows {
		if w.Measure == measure {
			rows = append(rows, w)
		}
	}
	slices.Reverse(rows)
	slices.SortStableFunc(rows, func(a, b *row) int {
		if a.Lower {
			a, b = b, a
		}
		return cmp.Compare(a.Value, b.Value)
	})
	return rows
}

// bars shows a rate of each system.
func bars(r *report, measure, title string) *plot.Plot {
	rows := bySystem(r, measure)
	if len(rows) == 0 {
		return nil
	}
	p := panel(title)
	for i, w := range rows {
		bar, _ := plotter.NewBarChart(plotter.Values{w.Value / 1000},
			13) // its error is about values that are no numbers
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(i), colorOf(w.System), 0
		p.Add(bar, label(w.Value/1000, float64(i), " "+short(w.Value/1000)))
	}
	p.X.Min, p.X.Max = 0, 1.15*rows[len(rows)-1].Value/1000
	p.HideX()
	nameRows(p, rows)
	return p
}

// spans shows two percentiles of each system, by the logarithm, for they differ by thousands.
func spans(r *report, low, high, title string) *plot.Plot {
	rows := bySystem(r, low)
	if len(rows) == 0 {
		return nil
	}
	p := panel(title)
	g := plotter.NewGrid()
	g.Horizontal.Width, g.Vertical.Color = 0, rule
	p.Add(g)
	least, most := math.Inf(1), 0.0
	for i, w := range rows {
		from, to := w.Value, w.Value
		if h := r.find(w.System, high); h != nil {
			to = h.Value
		}
		least, most = min(least, from), max(most, to)
		y := float64(i)
		span, _ := plotter.NewLine(plotter.XYs{{X: from, Y: y}, {X: to, Y: y}})
		span.Width, span.Color = 2, colorOf(w.System)
		dots := make([]*plotter.Scatter, 2)
		for j, x := range []float64{to, from} {
			dots[j], _ = plotter.NewScatter(plotter.XYs{{X: x, Y: y}})
			dots[j].GlyphStyle = draw.GlyphStyle{Color: colorOf(w.System), Radius: 4, Shape: draw.CircleGlyph{}}
		}
		hole, _ := plotter.NewScatter(plotter.XYs{{X: to, Y: y}})
		hole.GlyphStyle = draw.GlyphStyle{Color: color.White, Radius: 2.5, Shape: draw.CircleGlyph{}}
		price := ""
		if idle := r.find(w.System, "idle"); idle != nil && idle.Value > 10 {
			price = fmt.Sprintf(", and %s commands/s while idle", short(idle.Value))
		}
		p.Add(span, dots[0], hole, dots[1], label(to, y, fmt.Sprintf("   %s to %s%s", short(from), short(to), price)))
	}
	p.X.Scale, p.X.Min, p.X.Max = plot.LogScale{}, math.Pow(10, math.Floor(math.Log10(least))), 5*most
	var ticks []plot.Tick
	for x := p.X.Min; x < p.X.Max; x *= 10 {
		ticks = append(ticks, plot.Tick{Value: x, Label: short(x)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	nameRows(p, rows)
	return p
}

// nameRows writes the systems' names at the left.
func nameRows(p *plot.Plot, rows []*row) {
	var names []string
	for _, w := range rows {
		names = append(names, w.System)
	}
	p.NominalY(names...)
	p.Y.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
}

func label(x, y float64, s string) *plotter.Labels {
	l, _ := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{s}})
	l.TextStyle[0].Font.Size, l.TextStyle[0].YAlign, l.Offset.Y = 9.5, text.YCenter, 1.5
	return l
}

// lines shows how a rate changes along an axis of growth.
func lines(r *report, prefix, title string) *plot.Plot {
	p := panel(title)
	g := plotter.NewGrid()
	g.Vertical.Width, g.Horizontal.Color = 0, rule
	p.Add(g)
	var points []string
	for _, system := range systems {
		var xys plotter.XYs
		for _, w := range r.Rows {
			point, ok := strings.CutPrefix(w.Measure, prefix)
			if !ok || w.System != system.name || w.Unit != perSecond {
				continue
			}
			if !slices.Contains(points, point) {
				points = append(points, point)
			}
			xys = append(xys, plotter.XY{X: float64(slices.Index(points, point)), Y: w.Value / 1000})
		}
		if len(xys) == 0 {
			continue
		}
		line, dots, _ := plotter.NewLinePoints(xys)
		line.Width, line.Color = 2, colorOf(system.name)
		dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: 3.5, Shape: draw.CircleGlyph{}}
		p.Add(line, dots)
		p.Legend.Add(" "+system.name, line, dots)
	}
	if len(points) == 0 {
		return nil
	}
	p.NominalX(points...)
	p.X.Min, p.X.Max = -0.3, float64(len(points))-0.7
	p.Y.LineStyle.Width = 0
	p.Legend.TextStyle.Font.Size, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = 9.5, true, 6, 6
	return p
}

// sameScale gives all panels the first one's axis and the last one's legend: the first axis of growth has no limit.
func sameScale(panels []*plot.Plot, unit string) {
	most := 0.0
	for _, p := range panels {
		most = max(most, 1.08*p.Y.Max)
	}
	for i, p := range panels {
		p.Y.Min, p.Y.Max = 0, most
		if i < len(panels)-1 {
			p.Legend = plot.NewLegend()
		}
	}
	panels[0].Y.Label.Text = unit
}
