// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy runs the unmodified kube-proxy of a Kubernetes release as a proxier, in each of its modes. It
// builds the binary once, from the release's Go modules.
package kubeproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"

	blackbox "github.com/viplab/viplab/proxiers/exec"
)

// DefaultVersion is the release that New uses if version is empty.
const DefaultVersion = release.Default

// Mode is a mode of kube-proxy, as its flag --proxy-mode names it.
type Mode string

// The modes.
const (
	IPTables  Mode = "iptables"
	IPVS      Mode = "ipvs"
	NFTables  Mode = "nftables"
	Userspace Mode = "userspace"
)

// Modes lists all modes in the order of their introduction.
var Modes = []Mode{Userspace, IPTables, IPVS, NFTables}

// proxier is kube-proxy in one mode.
type proxier struct {
	spec.Proxier // the same as any other program

	mode    Mode
	version string
	binary  string
	detect  Detection
	args    []string // in addition to those of the mode
	built   bool     // Prepare may build the binary
}

// New returns kube-proxy in a mode. If binary is empty, it is that of the release version ("" means DefaultVersion).
// Otherwise it is the given binary, and New asks it for its version. detect may be empty for ClusterCIDR. args are
// appended to the arguments that viplab needs.
func New(mode Mode, version, binary string, detect Detection, args ...string) (spec.Proxier, error) {
	p := &proxier{mode: mode, version: version, built: binary == "", detect: cmp.Or(detect, ClusterCIDR)}
	name := "kube-proxy-" + string(mode)
	var err error
	switch {
	case binary != "" && version != "":
		return nil, fmt.Errorf("%s: name a version or a binary, not both", name)
	case binary != "":
		p.version, err = versionOf(binary)
	default:
		if version == "" {
			p.version = DefaultVersion
		}
		if err := release.CheckVersion(p.version); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		binary, err = command(p.version).Path()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := cmp.Or(mode.exists(minorOf(p.version)), p.detect.check()); err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, p.version, err)
	}
	p.binary, p.args = binary, args
	return p, p.assemble(nil)
}

// fromFile is a shell script that has kube-proxy write its settings to a file, adds the setting that has no flag, and
// starts it with the file. Its parameters are the bit of that setting, kube-proxy and its flags.
const fromFile = `bit=$1 program=$2
shift 2
"$program" "$@" --write-config-to=settings.yaml &&
	sed -i "/^nftables:/,/^[a-z]/ s/masqueradeBit:.*/masqueradeBit: $bit/" settings.yaml &&
	exec "$program" --config=settings.yaml`

// assemble makes the command for the mode. kube-proxy gets settings in a file, or as flags if they are nil.
func (p *proxier) assemble(settings *spec.ProxyConfig) (err error) {
	minor := minorOf(p.version)
	features := p.mode.features(minor)
	if p.detect == NoDetection { // it does not know whose packets to masquerade
		features = features.Without(spec.ClusterIPFromOutside)
	}
	command := []string{p.binary}
	if settings != nil {
		bit := bits.TrailingZeros32(settings.MasqueradeMark())
		command = []string{"/bin/sh", "-c", fromFile, "settings", strconv.Itoa(bit), p.binary}
	}
	p.Proxier, err = blackbox.New(blackbox.Command{
		Name:      "kube-proxy-" + string(p.mode),
		Argv:      slices.Concat(command, p.mode.arguments(minor), p.detect.arguments(), p.args),
		Features:  features,
		Configure: func(c spec.ProxyConfig) []string { return configure(c, minor) },
		Rounds:    p.mode.rounds(),
		Cleanup:   append([]string{p.binary, "--cleanup"}, p.mode.gates(minor)...),
		// kube-proxy exits if it may not open 64000 files, although it needs far fewer (setRLimit in
		// pkg/proxy/userspace/rlimit.go).
		KeepFileLimit: p.mode == Userspace,
	})
	return err
}

// Other implements spec.Proxier. It returns the same binary in another mode.
func (p *proxier) Other() spec.Proxier {
	o := *p
	if o.mode = p.mode.other(); o.mode == "" {
		return nil
	}
	if err := o.assemble(nil); err != nil {
		panic(err) // the same parts were checked when p was made
	}
	return &o
}

// Prepare builds the binary of a kube-proxy if it does not exist. It does nothing for other proxiers. Call it outside
// the sandbox, where there is a network. It writes progress messages to progress.
func Prepare(ctx context.Context, which spec.Proxier, progress io.Writer) error {
	p, ok := which.(*proxier)
	if !ok || !p.built {
		return nil
	}
	err := command(p.version).Build(ctx, progress)
	if errors.Is(err, release.ErrNoToolchain) {
		return &spec.UnusableError{
			Missing: "the Go toolchain, to build kube-proxy " + p.version,
			Cure:    "install Go, or name a binary with --kube-proxy-binary",
		}
	}
	return err
}

func command(version string) release.Command {
	return release.Command{Name: "kube-proxy", Version: version}
}

// Usable returns an error that says what the mode lacks here.
func (p *proxier) Usable(ctx context.Context, families ...lab.Family) error {
	if err := p.mode.usable(ctx); err != nil {
		return err
	}
	if err := p.Proxier.Usable(ctx, families...); err != nil {
		return &spec.UnusableError{
			Missing: "the binary of kube-proxy " + p.version,
			Cure:    "it is built when there is a network, or named with --kube-proxy-binary",
		}
	}
	return nil
}

// Start starts kube-proxy on a node. The userspace mode serves only one family, that of the node's first address. Flags
// for masquerading and the sync periods do not reach the nftables mode before v1.31, and releases before v1.26 cannot
// disable NodePorts on 127.0.0.1 alone. The nftables mode gets a MasqueradeBit in a file, since it has no flag for it.
// For releases before v1.27, Start also makes the kubelet's rules.
func (p *proxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	if p.mode == Userspace && len(node.Families) > 1 {
		return nil, &spec.UnusableError{Missing: "a cluster of one IP family", Cure: "--ip 4 or --ip 6"}
	}
	unread := p.mode == NFTables && minorOf(p.version) < nftablesFlags
	if unread && (node.Config.MasqueradeAll || node.Config.SyncPeriod > 0 || node.Config.MinSyncPeriod != nil) {
		return nil, &spec.UnusableError{Missing: "flags for the nftables mode", Cure: "judge v1.31 or newer"}
	}
	if node.Config.NoLocalhostNodePorts && minorOf(p.version) < 26 {
		return nil, &spec.UnusableError{Missing: "the flag --iptables-localhost-nodeports",
			Cure: "judge v1.26 or newer"}
	}
	if err := p.detect.fits(node); err != nil {
		return nil, err
	}
	if minorOf(p.version) < ownRules {
		if err := actAsKubelet(ctx, node); err != nil {
			return nil, err
		}
	}
	if node.Config.ConfigFile || p.mode == NFTables && node.Config.MasqueradeBit > 0 {
		told := *p
		if err := told.assemble(&node.Config); err != nil {
			return nil, err
		}
		return told.Proxier.Start(ctx, node)
	}
	return p.Proxier.Start(ctx, node)
}

var printedVersion = regexp.MustCompile(`v1\.[0-9]+\.[0-9]+`)

// Release returns the mode, the version and the local detection of a kube-proxy that New returned, as in "iptables",
// "v1.36.3" and "ClusterCIDR". It reports whether p is one.
func Release(p spec.Proxier) (mode Mode, version string, detect Detection, ok bool) {
	k, ok := p.(*proxier)
	if !ok {
		return "", "", "", false
	}
	return k.mode, k.version, k.detect, true
}

// versionOf returns the version that a binary reports.
func versionOf(binary string) (string, error) {
	out, err := exec.Command(binary, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", binary, err, strings.TrimSpace(string(out)))
	}
	v := printedVersion.FindString(string(out))
	if v == "" {
		return "", fmt.Errorf("%s --version: it says %q, which is no release of Kubernetes", binary,
			strings.TrimSpace(string(out)))
	}
	return v, nil
}

// minorOf returns the minor version: 36 for v1.36.3.
func minorOf(version string) int {
	n, _ := strconv.Atoi(strings.Split(version, ".")[1]) // both patterns for versions have digits here
	return n
}
