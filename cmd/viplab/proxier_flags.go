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

	"github.com/spf13/cobra"

	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/expect"
	"github.com/viplab/viplab/suite/spec"
)

// proxierFlags select the proxiers to judge (built-in ones, releases of kube-proxy, or a command) and the enforcer
// beside them.
type proxierFlags struct {
	names            []string
	exec             string
	name             string
	execVersion      string
	features         string
	kubeProxyVersion string
	kubeProxyBinary  string
	detectLocal      string
	enforcerName     string

	given func(flag string) bool // reports whether the command line has the flag
}

// add adds the flags. defaults are the proxiers if the command line names none.
func (f *proxierFlags) add(cmd *cobra.Command, defaults ...string) {
	f.addProxier(cmd, defaults...)
	cmd.Flags().StringVar(&f.enforcerName, "enforcer", "", "enforcer of network policies to place on every node: "+
		strings.Join(enforcerNames(), ", ")+" (default: none; scenarios of network policies are skipped)")
	complete(cmd, "enforcer", enforcerNames()...)
}

// addProxier adds the flags of the proxier alone.
func (f *proxierFlags) addProxier(cmd *cobra.Command, defaults ...string) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.names, "proxier", defaults, "proxiers to judge: "+strings.Join(proxierNames(), ", "))
	flags.StringVar(&f.exec, "exec", "", "judge this command: it is started on every node with a kubeconfig; "+
		"its words are Go templates with .Kubeconfig .NodeName .NodeIP .NodeIPs .PodCIDR .ClusterCIDR .ServiceCIDR "+
		".StateDir, and settings such as .MasqueradeAll (docs/outside.md)")
	flags.StringVar(&f.name, "name", "", "name of the command of --exec in reports (default: the name of its program)")
	flags.StringVar(&f.execVersion, "exec-version", "", "version of the command of --exec, for reports and --expect")
	flags.StringVar(&f.features, "features", "",
		"features that the command of --exec has or lacks: +feature,-feature (default: all but those of a mechanism)")
	flags.StringVar(&f.kubeProxyVersion, "kube-proxy-version", "",
		"release of kube-proxy to build and judge (default "+kubeproxy.DefaultVersion+")")
	flags.StringVar(&f.kubeProxyBinary, "kube-proxy-binary", "", "judge this kube-proxy instead of building one")
	flags.StringVar(&f.detectLocal, "detect-local-mode", string(kubeproxy.ClusterCIDR),
		"how kube-proxy tells the node's own pods from other senders: "+strings.Join(detections(), ", "))
	f.given = flags.Changed
	complete(cmd, "proxier", proxierNames()...)
	complete(cmd, "detect-local-mode", detections()...)
}

func detections() []string {
	return each(kubeproxy.Detections, func(d kubeproxy.Detection) string { return string(d) })
}

// filter reports whether the command line selects proxiers or an enforcer.
func (f *proxierFlags) filter() bool {
	return f.given("proxier") || f.given("exec") || f.given("enforcer")
}

func enforcerNames() []string { return each(proxiers.Enforcers(), spec.Proxier.Name) }

// enforcer returns the enforcer of --enforcer, or nil without that flag.
func (f *proxierFlags) enforcer() (spec.Proxier, error) {
	switch {
	case f.given("enforcer") && f.enforcerName == "":
		return nil, noEnforcer()
	case f.enforcerName == "":
		return nil, nil
	}
	return enforcerNamed(f.enforcerName)
}

// noEnforcer returns the error of an empty --enforcer.
func noEnforcer() error {
	return fmt.Errorf("--enforcer: it is empty: name one (%s), or omit the flag", strings.Join(enforcerNames(), ", "))
}

func proxierNames() []string {
	return append(proxiers.Names(),
		each(kubeproxy.Modes, func(m kubeproxy.Mode) string { return kubeProxyPrefix + string(m) })...)
}

const kubeProxyPrefix = "kube-proxy-"

// proxiers returns the proxiers that the flags name. With --exec, there is no default.
func (f *proxierFlags) proxiers() ([]spec.Proxier, error) {
	var found []spec.Proxier
	var errs []error
	if !f.given("exec") || f.given("proxier") {
		for _, name := range f.names {
			p, err := f.proxier(name)
			found, errs = append(found, p), append(errs, inFlag("proxier", err))
		}
	}
	if f.given("exec") {
		p, err := f.command()
		found, errs = append(found, p), append(errs, err)
	} else if f.name != "" || f.features != "" || f.execVersion != "" {
		errs = append(errs, errors.New("--name, --features and --exec-version require --exec"))
	}
	if f.given("proxier") && len(f.names) == 0 {
		errs = append(errs, fmt.Errorf("--proxier: it is empty: name one (%s)", strings.Join(proxierNames(), ", ")))
	}
	err := errors.Join(errs...)
	if err != nil || slices.ContainsFunc(found, isKubeProxy) {
		return found, err
	}
	for _, flag := range []string{"kube-proxy-version", "kube-proxy-binary", "detect-local-mode"} {
		if f.given(flag) {
			errs = append(errs, fmt.Errorf("--%s is for kube-proxy, and none of %s is one: add --proxier %siptables, "+
				"or omit the flag", flag, strings.Join(each(found, spec.Proxier.Name), ", "), kubeProxyPrefix))
		}
	}
	return found, errors.Join(errs...)
}

// shipped returns the expectations that come with viplab for a program, or nil if there are none. Those for programs
// that viplab brings along do not apply to a command of --exec that has the name of one.
func (f *proxierFlags) shipped(p spec.Proxier, program string) (*expect.File, error) {
	own := program+"-" == kubeProxyPrefix || slices.Contains(proxierNames(), program)
	if f.given("exec") && p.Name() == f.name && own {
		return nil, nil
	}
	return expect.Shipped(program)
}

func isKubeProxy(p spec.Proxier) bool {
	return p != nil && strings.HasPrefix(p.Name(), kubeProxyPrefix)
}

// proxier returns the built-in one, or the mode of kube-proxy, of that name.
func (f *proxierFlags) proxier(name string) (spec.Proxier, error) {
	if err := known("proxier", name, proxierNames()); err != nil {
		return nil, err
	}
	if mode, ok := strings.CutPrefix(name, kubeProxyPrefix); ok {
		return kubeproxy.New(kubeproxy.Mode(mode), f.kubeProxyVersion, f.kubeProxyBinary,
			kubeproxy.Detection(f.detectLocal))
	}
	builtIn, err := proxiers.Find(name)
	if err != nil {
		return nil, err
	}
	return builtIn[0], nil
}

func (f *proxierFlags) command() (spec.Proxier, error) {
	features, err := adjusted(spec.DefaultFeatures(), f.features)
	if err != nil {
		return nil, inFlag("features", err)
	}
	p, err := program(f.exec, exec.Command{Name: f.name, Features: features})
	if err == nil {
		f.name = p.Name()
	}
	return p, err
}

// program returns the proxier or enforcer for a command line. Its default name is that of the program.
func program(line string, c exec.Command) (spec.Proxier, error) {
	var err error
	if c.Argv, err = exec.Split(line); err != nil {
		return nil, inFlag("exec", err)
	}
	remedy := ""
	if c.Name == "" {
		c.Name, remedy = filepath.Base(c.Argv[0]), "; --name gives it another name"
	}
	p, err := exec.New(c)
	if err != nil {
		err = fmt.Errorf("--exec: %w%s", err, remedy)
	}
	return p, err
}

// checkExec returns an error if the program of --exec does not exist.
func (f *proxierFlags) checkExec(ctx context.Context, programs []spec.Proxier) error {
	for _, p := range programs {
		var missing *spec.UnusableError
		if f.given("exec") && p.Name() == f.name && errors.As(p.Usable(ctx), &missing) {
			return inFlag("exec", errors.New(missing.Cure))
		}
	}
	return nil
}

// quoted returns the arguments that select one of the proxiers, quoted for a shell.
func (f *proxierFlags) quoted(p spec.Proxier) string {
	return quoted(f.arguments(p))
}

// arguments returns the flags that select one of the proxiers and the enforcer beside it.
func (f *proxierFlags) arguments(p spec.Proxier) []string {
	flags := []string{"--proxier", p.Name()}
	switch {
	case f.given("exec") && p.Name() == f.name:
		flags = []string{"--exec", f.exec, "--name", f.name}
		if f.features != "" {
			flags = append(flags, "--features", f.features)
		}
		if f.execVersion != "" {
			flags = append(flags, "--exec-version", f.execVersion)
		}
	case !isKubeProxy(p):
	case f.kubeProxyBinary != "":
		flags = append(flags, "--kube-proxy-binary", f.kubeProxyBinary)
	case f.kubeProxyVersion != "":
		flags = append(flags, "--kube-proxy-version", f.kubeProxyVersion)
	}
	if f.given("detect-local-mode") && isKubeProxy(p) {
		flags = append(flags, "--detect-local-mode", f.detectLocal)
	}
	if f.enforcerName != "" {
		flags = append(flags, "--enforcer", f.enforcerName)
	}
	return flags
}

// adjusted returns a set plus or minus the features of a list like "+relays,-nodeport-localhost".
func adjusted(set spec.FeatureSet, list string) (spec.FeatureSet, error) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		feature := spec.Feature(strings.TrimLeft(word, "+-"))
		if !feature.Known() {
			names := each(spec.AllFeatures(), func(f spec.Feature) string { return string(f) })
			return nil, fmt.Errorf("%w; viplab features has their meanings", known("feature", string(feature), names))
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

// prepare builds the binaries of kube-proxy, which needs the network that the sandbox does not have.
func prepare(ctx context.Context, programs []spec.Proxier, progress io.Writer) error {
	if sandbox.Inside() {
		return nil
	}
	for _, p := range programs {
		if err := kubeproxy.Prepare(ctx, p, progress); err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
	}
	return nil
}
