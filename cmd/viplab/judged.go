// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/syntax"

	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/spec"
)

// judgedFlags say which proxiers to judge: built-in ones, releases of kube-proxy, and any command.
type judgedFlags struct {
	names            []string
	exec             string
	name             string
	features         string
	kubeProxyVersion string
	kubeProxyBinary  string
	enforcerName     string

	given func(flag string) bool
}

// add adds the flags. Unless others are named, the defaults are judged.
func (f *judgedFlags) add(flags *pflag.FlagSet, defaults ...string) {
	flags.StringSliceVar(&f.names, "proxier", defaults, "proxiers to judge: "+strings.Join(proxierNames(), ", "))
	flags.StringVar(&f.exec, "exec", "", "judge this command: it is started on every node with a kubeconfig; its words "+
		"are Go templates with .Kubeconfig .NodeName .NodeIP .NodeIPs .PodCIDR .ClusterCIDR .ServiceCIDR .StateDir")
	flags.StringVar(&f.name, "name", "", "what reports call the command of --exec (default: the name of its program)")
	flags.StringVar(&f.features, "features", "",
		"correct what the command of --exec is taken to claim, everything but a mechanism: +feature,-feature")
	flags.StringVar(&f.kubeProxyVersion, "kube-proxy-version", "",
		"release of kube-proxy to build and judge (default "+kubeproxy.DefaultVersion+")")
	flags.StringVar(&f.kubeProxyBinary, "kube-proxy-binary", "", "judge this kube-proxy instead of building one")
	flags.StringVar(&f.enforcerName, "enforcer", "",
		"enforcer of network policies to place on every node beside the proxier: "+strings.Join(enforcerNames(),
			", ")+" (default: none; scenarios of network policies are skipped)")
	f.given = flags.Changed
}

// enforcerNames are the values of --enforcer.
func enforcerNames() []string {
	var names []string
	for _, e := range proxiers.Enforcers() {
		names = append(names, e.Name())
	}
	return names
}

// enforcer is what --enforcer names, nil if it names nothing.
func (f *judgedFlags) enforcer() (spec.Proxier, error) {
	if f.enforcerName == "" {
		return nil, nil
	}
	return enforcerNamed(f.enforcerName)
}

// proxierNames are the values of --proxier.
func proxierNames() []string {
	names := proxiers.Names()
	for _, m := range kubeproxy.Modes {
		names = append(names, kubeProxyPrefix+string(m))
	}
	return names
}

const kubeProxyPrefix = "kube-proxy-"

// proxiers are those that the flags name. --exec alone stands for itself.
func (f *judgedFlags) proxiers() ([]spec.Proxier, error) {
	var found []spec.Proxier
	var errs []error
	collect := func(p spec.Proxier, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		found = append(found, p)
	}
	if !f.given("exec") || f.given("proxier") {
		var unknown []string
		for _, name := range f.names {
			mode, isKubeProxy := strings.CutPrefix(name, kubeProxyPrefix)
			switch {
			case !slices.Contains(proxierNames(), name):
				unknown = append(unknown, fmt.Sprintf("%q", name))
			case isKubeProxy:
				collect(kubeproxy.New(kubeproxy.Mode(mode), f.kubeProxyVersion, f.kubeProxyBinary))
			default:
				builtIn, err := proxiers.Find(name)
				found = append(found, builtIn...)
				if err != nil {
					errs = append(errs, err)
				}
			}
		}
		if len(unknown) > 0 {
			errs = append(errs, fmt.Errorf("--proxier: unknown proxier %s: there are %s",
				strings.Join(unknown, ", "), strings.Join(proxierNames(), ", ")))
		}
	}
	if f.given("exec") {
		collect(f.command())
	} else if f.name != "" || f.features != "" {
		errs = append(errs, errors.New("--name and --features speak of --exec, which is not given"))
	}
	return found, errors.Join(errs...)
}

// command is the proxier of --exec.
func (f *judgedFlags) command() (spec.Proxier, error) {
	argv, err := exec.Split(f.exec)
	if err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	if f.name == "" {
		f.name = filepath.Base(argv[0])
	}
	features, err := correct(spec.Assumed(), f.features)
	if err != nil {
		return nil, fmt.Errorf("--features: %w", err)
	}
	p, err := exec.New(exec.Command{Name: f.name, Argv: argv, Features: features})
	if err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	return p, nil
}

// of are the arguments, as a shell takes them.
func (f *judgedFlags) of(p spec.Proxier) string {
	flags := f.arguments(p)
	for i, word := range flags {
		if quoted, err := syntax.Quote(word, syntax.LangPOSIX); err == nil {
			flags[i] = quoted
		}
	}
	return strings.Join(flags, " ")
}

// arguments are the flags that name one of the proxiers alone, and the enforcer beside it.
func (f *judgedFlags) arguments(p spec.Proxier) []string {
	if f.enforcerName == "" {
		return f.proxierArguments(p)
	}
	return append(f.proxierArguments(p), "--enforcer", f.enforcerName)
}

func (f *judgedFlags) proxierArguments(p spec.Proxier) []string {
	switch {
	case f.given("exec") && p.Name() == f.name:
		flags := []string{"--exec", f.exec, "--name", f.name}
		if f.features != "" {
			flags = append(flags, "--features", f.features)
		}
		return flags
	case !strings.HasPrefix(p.Name(), kubeProxyPrefix):
	case f.kubeProxyBinary != "":
		return []string{"--proxier", p.Name(), "--kube-proxy-binary", f.kubeProxyBinary}
	case f.kubeProxyVersion != "":
		return []string{"--proxier", p.Name(), "--kube-proxy-version", f.kubeProxyVersion}
	}
	return []string{"--proxier", p.Name()}
}

// correct adds and takes away the features of a list like "+hairpin,-nodeport-localhost".
func correct(set spec.FeatureSet, list string) (spec.FeatureSet, error) {
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		feature := spec.Feature(strings.TrimLeft(word, "+-"))
		if !feature.Known() {
			return nil, fmt.Errorf("unknown feature %q: there are %s", feature, joinFeatures(spec.AllFeatures()))
		}
		switch word[0] {
		case '+':
			set[feature] = true
		case '-':
			delete(set, feature)
		default:
			return nil, fmt.Errorf("%q: want +%s or -%s", word, feature, feature)
		}
	}
	return set, nil
}

func joinFeatures(fs []spec.Feature) string {
	var names []string
	for _, f := range fs {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// prepare makes what proxiers need from the network, which the sandbox does not have.
func prepare(ctx context.Context, judged []spec.Proxier, progress io.Writer) error {
	if sandbox.Inside() {
		return nil
	}
	for _, p := range judged {
		if err := kubeproxy.Prepare(ctx, p, progress); err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
	}
	return nil
}
