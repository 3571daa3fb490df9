// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/noun"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/images"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// defaultLab is the name of a lab that gets no other one.
const defaultLab = "lab"

// upFlags describe a lab that stays.
type upFlags struct {
	programs proxierFlags
	cluster  clusterFlags
	nodes    int
	apiPort  uint16
	files    []string
}

func (f *upFlags) add(cmd *cobra.Command) {
	f.programs.add(cmd, "iptables")
	f.cluster.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.nodes, "nodes", 3, "how many nodes the lab has: n1, n2, ...")
	flags.Uint16Var(&f.apiPort, "api-port", 0, "port of the lab's Kubernetes API on 127.0.0.1 (default: a free one)")
	flags.StringSliceVarP(&f.files, "filename", "f", nil,
		"a lab.yaml, or a manifest to apply; - is the standard input")
}

func newUp() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up [NAME]",
		Short: "Start a lab that stays: a cluster to look into, for kubectl and for the commands of viplab",
		Long: `up starts a lab: a cluster out of network namespaces, with a proxier on every node. A process of its own
holds the lab and outlives the shell. "viplab down" ends it.

The lab's Kubernetes API listens on 127.0.0.1, with TLS and a token. Nothing else of the machine changes.

-f names manifests to apply, and at most one lab.yaml, which describes the lab (see docs/labs.md). Flags win over it.
up skips objects of kinds that it does not know, with a warning. It warns of NetworkPolicies that nothing enforces.`,
		Example: `  viplab up
  viplab up demo --proxier nftables --enforcer policy-nftables --ip 4 -f web.yaml
  viplab up -f lab.yaml
  viplab up other --exec './my-proxy --kubeconfig {{.Kubeconfig}} --node {{.NodeName}}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, strings.Join(args, ""))
		},
	}
	f.add(cmd)
	return cmd
}

func (f *upFlags) run(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	content, fromFile, err := f.read(cmd)
	if err != nil {
		return err
	}
	c := live.Config{Name: cmp.Or(name, fromFile, defaultLab), Content: content}
	if err := f.set(&c); err != nil {
		return err
	}
	objects, err := live.Objects(content.Manifests, "", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if c.Enforcer == nil {
		cure := "For a lab that enforces them: --enforcer policy-nftables, or --enforcer policy-calico --pods routed"
		if f.programs.given("exec") {
			cure += ", or with --features +networkpolicy if the command itself enforces them"
		}
		warnUnenforced(cmd.ErrOrStderr(), c.Proxier, objects, live.Sources(content.Manifests), cure)
	}
	if err := prepare(ctx, []spec.Proxier{c.Proxier}, cmd.ErrOrStderr()); err != nil {
		return err
	}
	folder, report, err := f.launch(ctx, c)
	if err != nil {
		return err
	}
	return printLab(cmd.OutOrStdout(), report, folder)
}

// warnUnenforced warns of network policies among objects of a source if a proxier without an enforcer does not enforce
// them. cure says what to do.
func warnUnenforced(w io.Writer, p spec.Proxier, objects []store.Object, source, cure string) {
	policies := 0
	for _, o := range objects {
		if store.ResourceOf(o).Kind == store.KindNetworkPolicy {
			policies++
		}
	}
	if policies > 0 && !p.Features()[spec.NetworkPolicy] {
		fmt.Fprintf(w, "Warning: %s: %s of kind NetworkPolicy, which no rules enforce: no enforcer is placed. %s\n",
			source, noun.Count(policies, "object"), cure)
	}
}

// read reads the files of -f, and sets the flags that a lab.yaml among them gives and the command line does not.
func (f *upFlags) read(cmd *cobra.Command) (content live.Content, name string, err error) {
	var described string
	var errs []error
	for _, path := range f.files {
		m, err := readManifest(path, cmd.InOrStdin())
		switch {
		case err != nil:
			errs = append(errs, err)
		case !live.IsFile(m.Text):
			content.Manifests = append(content.Manifests, m)
		case described != "":
			errs = append(errs, fmt.Errorf("%s and %s both describe the lab: want one lab.yaml", described, path))
		default:
			described = path
			file, err := live.ReadFile(path, m.Text)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			name = file.Name
			more, err := f.adopt(cmd, path, file)
			content.Manifests = append(content.Manifests, more...)
			errs = append(errs, err)
			folder, err := filepath.Abs(filepath.Dir(path))
			errs = append(errs, err)
			content.Images = map[string]images.Source{}
			for name, source := range file.Images {
				content.Images[name] = source.At(folder)
				if err := content.Images[name].Check(); err != nil {
					errs = append(errs, fmt.Errorf("%s: images: %s: %w", path, name, err))
				}
			}
		}
	}
	return content, name, errors.Join(errs...)
}

// adopt sets flags from a lab.yaml and reads the manifests that it names.
func (f *upFlags) adopt(cmd *cobra.Command, path string, file *live.File) (manifests []live.Manifest, err error) {
	var errs []error
	for name, value := range file.Flags() {
		if cmd.Flags().Changed(name) {
			continue
		}
		if err := cmd.Flags().Set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", path, name, err))
		}
	}
	for _, name := range file.Manifests {
		if name != "-" && !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		m, err := readManifest(name, cmd.InOrStdin())
		manifests, errs = append(manifests, m), append(errs, err)
	}
	return manifests, errors.Join(errs...)
}

// mostNodes is the number of nodes that the address plan of package lab has room for.
const mostNodes = 90

// set checks the flags and copies them into the description of a lab.
func (f *upFlags) set(c *live.Config) error {
	var o engine.Options
	var errs []error
	errs = append(errs, registry.CheckName(c.Name), f.cluster.set(&o))
	var err error
	c.Proxier, err = f.programs.one()
	errs = append(errs, err)
	c.Enforcer, err = f.programs.enforcer()
	errs = append(errs, err)
	if f.nodes < 1 || f.nodes > mostNodes {
		errs = append(errs, fmt.Errorf("--nodes: %d: want 1 to %d", f.nodes, mostNodes))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.Topology = lab.Topology{Stack: o.Stack, Overlay: o.Overlay, PodNetwork: o.PodNetwork}
	for i := range f.nodes {
		c.Topology.Nodes = append(c.Topology.Nodes, lab.NodeSpec{Name: fmt.Sprintf("n%d", i+1)})
	}
	return c.Topology.Validate()
}

// launch starts the process that holds the lab, and returns when the lab serves.
func (f *upFlags) launch(ctx context.Context, c live.Config) (folder registry.Folder, r live.Report, err error) {
	folder, lock, err := registry.Create(c.Name)
	if err != nil {
		return folder, r, err
	}
	defer lock.Close()
	failed := func(err error) (registry.Folder, live.Report, error) {
		lock.Close()
		return folder, r, errors.Join(err, folder.Remove())
	}
	sockets, err := listen(folder, lock, f.apiPort)
	if err != nil {
		return failed(err)
	}
	defer closeAll(sockets.Files())
	holder, err := f.holder(c, folder, sockets)
	if err != nil {
		return failed(err)
	}
	if err := holder.Start(); err != nil {
		return failed(err)
	}
	closeAll(sockets.Files())
	go func() { _ = holder.Wait() }() // passes the manifests on; how it ended is in its log
	if err := ask(ctx, folder, live.Status, nil, &r); err != nil {
		if ctx.Err() != nil {
			_ = holder.Process.Kill()
		}
		return folder, r, notStarted(folder, err)
	}
	return folder, r, nil
}

// holder returns the command that holds the lab. Its standard input is what the lab starts with.
func (f *upFlags) holder(c live.Config, folder registry.Folder, s live.Sockets) (*exec.Cmd, error) {
	stdin, err := json.Marshal(c.Content)
	if err != nil {
		return nil, err
	}
	log, err := openLog(folder.File(registry.Log))
	if err != nil {
		return nil, err
	}
	args := append([]string{"hold", c.Name, "--nodes", fmt.Sprint(f.nodes)}, f.cluster.arguments()...)
	cmd := exec.Command("/proc/self/exe", append(args, f.programs.arguments(c.Proxier)...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = s.Files()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// logReserve is the space in bytes that a log has for sure: for why a lab did not start on a full disk.
const logReserve = 16 << 10

func openLog(path string) (*os.File, error) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(log.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, logReserve)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) { // others: the file system cannot reserve
		log.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return log, nil
}

// listen opens the sockets of a lab on the machine.
func listen(folder registry.Folder, lock *os.File, port uint16) (s live.Sockets, err error) {
	api, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return s, fmt.Errorf("listen for the lab's API: %w: choose another --api-port, or none for a free one", err)
	}
	defer api.Close()
	requests, err := net.ListenUnix("unix", &net.UnixAddr{Name: folder.File(registry.Socket), Net: "unix"})
	if err != nil {
		return s, err
	}
	requests.SetUnlinkOnClose(false)
	defer func() { _ = requests.Close() }() // the holder has a copy
	s.Folder = lock
	if s.API, err = api.(*net.TCPListener).File(); err != nil {
		return s, err
	}
	s.Control, err = requests.File()
	return s, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// notStarted waits for the end of a lab that did not start, and returns what it said as an error.
func notStarted(folder registry.Folder, err error) error {
	if ended, waitErr := folder.Ended(); waitErr == nil {
		<-ended
	}
	said, _ := os.ReadFile(folder.File(registry.Log))
	if text := strings.TrimPrefix(strings.TrimSpace(string(said)), "viplab: "); text != "" {
		err = errors.New(text)
	}
	return errors.Join(fmt.Errorf("the lab %s did not start: %w", folder.Name, err), folder.Remove())
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path != "-" {
		return os.ReadFile(path)
	}
	text, err := io.ReadAll(stdin)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return text, nil
}

// printLab prints what a lab consists of and how clients find it.
func printLab(w io.Writer, r live.Report, folder registry.Folder) error {
	programs := "proxier " + r.Proxier
	if r.Enforcer != "" {
		programs += ", enforcer " + r.Enforcer
	}
	fmt.Fprintf(w, "lab %s: %s; IP families: %s; %s pods; overlay %s (%s)\n\n", r.Name, programs, r.Families, r.Pods,
		r.Overlay, r.Why)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tADDRESSES\tPODS")
	for _, m := range r.Machines {
		fmt.Fprintf(t, "%s\t%s\t%s\n", m.Name, joined(m.Addrs), joined(m.Pods))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nexport KUBECONFIG=%s\n", folder.File(registry.Kubeconfig))
	return err
}

func joined[T fmt.Stringer](list []T) string { return strings.Join(each(list, T.String), ", ") }
