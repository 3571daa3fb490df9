// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// folder returns the files of a lesson.
func folder(files ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

const twoSteps = `lab: {ip: 4, nodes: 1}
mask: ['serial \d+']
steps:
  - id: pods
    run: kubectl get pods
  - id: fix
    run: kubectl apply -f fix.yaml
    exercise: true
    check: [{run: viplab probe box web, want: Reply}]
`

const english = `# A title

Some **text**.

{{step pods}}

More.

{{step fix}}

{{hint fix}} First
line.
{{hint fix}} Second.

The end.
`

func TestLoad(t *testing.T) {
	l, err := Load(folder("lesson.yaml", twoSteps, "en.md", english, "output/pods.txt", "NAME\nbox\n"), "mine")
	if err != nil {
		t.Fatal(err)
	}
	text := l.Text("fr")
	if text.Title != "A title" || len(text.Parts) != 3 || text.Parts[2].Markdown != "The end." {
		t.Errorf("the text is %+v", text)
	}
	if hints := text.Parts[1].Hints; len(hints) != 2 || hints[0] != "First\nline." {
		t.Errorf("the hints are %q", hints)
	}
	page := l.Page("en")
	for _, want := range []string{"# A title\n", "$ kubectl get pods\nNAME\nbox\n```", "<summary>Solution</summary>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestMistakes(t *testing.T) {
	change := func(text, from, to string) string { return strings.Replace(text, from, to, 1) }
	for _, c := range []struct{ yaml, text, want string }{
		{"", english, "mine: there is no lesson.yaml"},
		{change(twoSteps, "run: kubectl get", "runs: kubectl get"), english, "mine/lesson.yaml: line 5: field runs not found"},
		{change(twoSteps, "ip: 4", "ips: 4"), english, "line 1: field ips not found"},
		{change(twoSteps, "id: fix", "id: pods"), english, "id \"pods\" names an earlier step"},
		{change(twoSteps, "id: fix", "id: Fix It"), english, "mine/lesson.yaml:6: step 2: id \"Fix It\""},
		{change(twoSteps, "    run: kubectl get pods\n", ""), english, "mine/lesson.yaml:4: step 1: want run"},
		{change(twoSteps, "    check:", "    mask: ['(']\n    check:"), english, "mask \"(\" is neither"},
		{strings.Split(twoSteps, "    check:")[0], english, "lesson.yaml:6: step 2: an exercise wants a check"},
		{change(twoSteps, "lab: {", "lab: {manifests: [no.yaml], "), english, "lab.manifests: open no.yaml"},
		{"steps: []", english, "there are no steps"},
		{"needs: [ip_vs, flux]\n" + twoSteps, english, `mine/lesson.yaml: needs: unknown feature "flux": there are network`},
		{twoSteps, "", "there is no text: want en.md"},
		{twoSteps, change(english, "# A", "A"), "mine/en.md:1: there is no title"},
		{twoSteps, change(english, "{{step pods}}", "{{step podz}}"), `mine/en.md:5: lesson.yaml has no step "podz"`},
		{twoSteps, change(english, "{{step pods}}", "{{step}}"), "mine/en.md:5: want {{step ID}}"},
		{twoSteps, change(english, "{{step pods}}", "{{step fix}}"), `mine/en.md:5: step "fix" does not come here`},
		{twoSteps, "# Only\n{{step pods}}\n", `step "fix" is missing`},
		{twoSteps, change(english, "{{hint fix}} First", "{{hint pods}} First"), "a hint stands right behind its step"},
	} {
		files := folder()
		if c.yaml != "" {
			files = folder("lesson.yaml", c.yaml)
		}
		if c.text != "" {
			files["en.md"] = &fstest.MapFile{Data: []byte(c.text)}
		}
		if _, err := Load(files, "mine"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got: %v", c.want, err)
		}
	}
	if _, err := Load(folder(), "My Lesson"); err == nil || !strings.Contains(err.Error(), "folder's name") {
		t.Error(err)
	}
}

func TestMasked(t *testing.T) {
	l, err := Load(folder("lesson.yaml", twoSteps+`    mask: [counters]
`+"# 30080\n", "en.md", english), "mine")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ a, b string }{
		{"web-6d9f7c5b8d-x2x4z  1/1  Running  3s", "web-77bb9d9c9d-aaaaa 1/1 Running   1m12s"},
		{"eth0 UP a2:4d:eb:5c:03:bc", "eth0 UP fe:0f:79:d5:e5:06"},
		{"10.0.0.1:43210 > 10.0.0.2:30080", "10.0.0.1:5432 > 10.0.0.2:30080"},
		{"tcp      6 117 TIME_WAIT sport=46280 dport=80", "tcp 6 7 TIME_WAIT sport=12345 dport=80"},
		{"   12   720 KUBE-SVC  6    --  *", "    0     0 KUBE-SVC  tcp  --  *"},
		{"serial 12", "serial 7"},
		{"services/web created", "service/web created"},
		{"deployments/web created", "deployment.apps/web created"},
		{"networkpolicies/web created", "networkpolicy.networking.k8s.io/web created"},
		{"counter packets 3 bytes 180 accept", "counter packets 0 bytes 0 accept"},
		{"KUBE-SVC  6    --  0.0.0.0/0", "KUBE-SVC  tcp  --  0.0.0.0/0"},
		{" |*10.0.0.3 | 43210 | 10.0.0.2 | 80 | 0x0 |*NEW |", " |*10.0.0.3    |  54321 | 10.0.0.2 | 80 | 0x0 |*NEW     |"},
		{"tcp 10.0.0.1:4321 -> 10.0.0.2:80 | 10.0.0.3:80 -> 10.0.0.1:4321 CLOSE",
			"tcp 10.0.0.1:5432 -> 10.0.0.2:80 | 10.0.0.3:80 -> 10.0.0.1:5432 TIME_WAIT"},
	} {
		if a, b := l.Masked(l.Steps[1], c.a), l.Masked(l.Steps[1], c.b); a != b {
			t.Errorf("%q and %q differ: %q, %q", c.a, c.b, a, b)
		}
	}
	for _, c := range []struct{ a, b string }{
		{"10.0.0.2:30080", "10.0.0.2:30081"},
		{"10.0.0.2:80", "10.0.0.2:81"},
		{"web-6d9f7c5b8d-x2x4z", "api-6d9f7c5b8d-x2x4z"},
		{"Reply", "Silence"},
		{" | 10.0.0.1 | 43210 | 10.0.0.2 | 80 | 0x0 |*NEW |", " | 10.0.0.1 | 43210 | 10.0.0.2 | 80 | 0x0 |*ESTABLISHED |"},
	} {
		if a, b := l.Masked(l.Steps[1], c.a), l.Masked(l.Steps[1], c.b); a == b {
			t.Errorf("%q and %q are the same: %q", c.a, c.b, a)
		}
	}
	if a, b := l.Masked(l.Steps[0], "1 60 X"), l.Masked(l.Steps[0], "2 120 X"); a == b {
		t.Error("counters are masked though the step does not say so")
	}
}

func TestDifferences(t *testing.T) {
	l, err := Load(folder("lesson.yaml", twoSteps, "en.md", english, "output/pods.txt", "a\nb\nc\n"), "mine")
	if err != nil {
		t.Fatal(err)
	}
	if d := strings.Join(l.Differences(l.Steps[0], "a\nx\nc\nd\n"), "|"); d != "- b|+ x|+ d" {
		t.Error(d)
	}
	if d := l.Differences(l.Steps[0], "a\nb\nc"); d != nil {
		t.Error(d)
	}
	l.Steps[0].Unordered = true
	if d := l.Differences(l.Steps[0], "c\nb\na"); d != nil {
		t.Error(d)
	}
}

func TestTerminal(t *testing.T) {
	got := Terminal("## Head\n\n**Bold** `code` [page](x.md)\n```\n  +--+\n```\nend", false)
	if want := "Head\n\nBold code page (x.md)\n      +--+\nend"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgress(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	p, err := ReadProgress()
	if err != nil || len(p) != 0 {
		t.Fatal(p, err)
	}
	p["01-pods"] = Reached{Steps: 3}
	if err := p.Write(); err != nil {
		t.Fatal(err)
	}
	if p, err = ReadProgress(); err != nil || p["01-pods"].Steps != 3 {
		t.Error(p, err)
	}
	file := filepath.Join(os.Getenv("XDG_STATE_HOME"), "viplab", "lessons.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProgress(); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestShell(t *testing.T) {
	l, err := Load(folder("lesson.yaml", twoSteps, "en.md", english), "mine")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.NewShell(t.TempDir(), "GREETING=hello")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	got, err := s.Output(t.Context(), "echo $GREETING; ls lesson.yaml; exit 3", &shown)
	if want := "hello\nlesson.yaml\n[exit code 3]\n"; err != nil || got != want || shown.String() != want {
		t.Errorf("got %q and %q, %v", got, shown.String(), err)
	}
	unmet, err := s.Unmet(t.Context(), &Step{Check: []Check{{Run: "echo Reply", Want: "Reply"}, {Run: "echo Silence", Want: "Reply"}}})
	if err != nil || len(unmet) != 1 || !strings.Contains(unmet[0], "Silence") {
		t.Error(unmet, err)
	}
}
