package exec

import (
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{`proxy`, []string{"proxy"}},
		{"  ./my-proxy\t--a=1  -b\n2 ", []string{"./my-proxy", "--a=1", "-b", "2"}},
		{`p 'a b' "c d" e\ f ''`, []string{"p", "a b", "c d", "e f", ""}},
		{`p a'b c'd"e"`, []string{"p", "ab cde"}},
		{`p '$HOME; a | b' "\"x\" \\ \n"`, []string{"p", "$HOME; a | b", `"x" \ \n`}},
		{`p \$x \;`, []string{"p", "$x", ";"}},
		{`p a#b ~ok`[:5], []string{"p", "a#b"}},
		{`p --kubeconfig={{ .Kubeconfig }} "{{ printf "%s x" .NodeName }}"`,
			[]string{"p", "--kubeconfig={{ .Kubeconfig }}", `{{ printf "%s x" .NodeName }}`}},
		{`sh -c 'exec proxy >log 2>&1'`, []string{"sh", "-c", "exec proxy >log 2>&1"}},
	} {
		got, err := Split(c.line)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	for line, want := range map[string]string{
		"":            "empty",
		"  ":          "empty",
		"p | tee x":   `"|" would need one`,
		"p >x":        `">" would need one`,
		"p; q":        `";" would need one`,
		"p $HOME":     `"$" would need one`,
		`p "$HOME"`:   `"$" would need one`,
		"p `date`":    "would need one",
		"p *.yaml":    `"*" would need one`,
		"p ~/x":       `"~" would need one`,
		"p # comment": `"#" would need one`,
		`p 'a`:        "not closed",
		`p "a`:        "not closed",
		`p \`:         "backslash",
		`p {{.NodeIP`: "{{ is not closed",
		`p "{{.X`:     "{{ is not closed",
	} {
		if got, err := Split(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want an error with %q", line, got, err, want)
		}
	}
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		command Command
		want    string // in the error; empty: none
	}{
		{Command{Name: "mine", Argv: []string{"p", "{{.Kubeconfig}} {{.NodeName}} {{.NodeIP}} {{.NodeIPs}}",
			"{{.PodCIDR}} {{.ClusterCIDR}} {{.ServiceCIDR}} {{.StateDir}}"}}, ""},
		{Command{Name: "mine", Argv: []string{"p", "{{.KubeConfig}}"}}, "can't evaluate field KubeConfig"},
		{Command{Name: "mine", Argv: []string{"p", "{{.NodeName"}}, "unclosed action"},
		{Command{Name: "mine", Argv: []string{"p", "{{nodename}}"}}, "not defined"},
		{Command{Name: "my proxy", Argv: []string{"p"}}, "lower case"},
		{Command{Name: "mine"}, "no command"},
	} {
		_, err := New(c.command)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.command.Argv, err, c.want)
		}
	}
}
