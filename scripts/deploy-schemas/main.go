// Reads Compose files with the schema of the Compose specification, and Nomad jobs with the types of Nomad's API. Unknown keys and
// values of a wrong kind are errors, which name file and line.
//
//	deploy-schemas FILE.yaml... FILE.nomad.hcl...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
	"github.com/zclconf/go-cty/cty"
)

func main() {
	failed := len(os.Args) < 2
	for _, path := range os.Args[1:] {
		read := readCompose
		if strings.HasSuffix(path, ".nomad.hcl") {
			read = readNomad
		}
		summary, err := read(path)
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			continue
		}
		fmt.Printf("%s: %s\n", path, summary)
	}
	if failed {
		os.Exit(1)
	}
}

func readCompose(path string) (string, error) {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithWorkingDirectory(filepath.Dir(path)))
	if err != nil {
		return "", err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("valid, services %s", strings.Join(project.ServiceNames(), ", ")), nil
}

// A file of Nomad: one job, and the variables that it uses.
type nomadFile struct {
	Variables []nomadVariable `hcl:"variable,block"`
	Jobs      []nomadJob      `hcl:"job,block"`
}

type nomadVariable struct {
	Name        string         `hcl:"name,label"`
	Description string         `hcl:"description,optional"`
	Type        hcl.Expression `hcl:"type,optional"`
	Default     hcl.Expression `hcl:"default,optional"`
}

type nomadJob struct {
	Name string   `hcl:"name,label"`
	Rest hcl.Body `hcl:",remain"`
}

func readNomad(path string) (string, error) {
	parsed, diagnostics := hclparse.NewParser().ParseHCLFile(path)
	if diagnostics.HasErrors() {
		return "", diagnostics
	}
	var file nomadFile
	if diagnostics := gohcl.DecodeBody(parsed.Body, nil, &file); diagnostics.HasErrors() {
		return "", diagnostics
	}
	if len(file.Jobs) != 1 {
		return "", errors.New("a file has one job")
	}
	variables := map[string]cty.Value{}
	for _, variable := range file.Variables {
		value, diagnostics := variable.Default.Value(nil)
		if diagnostics.HasErrors() {
			return "", diagnostics
		}
		if value.IsNull() {
			value = cty.StringVal("value of " + variable.Name)
		}
		variables[variable.Name] = value
	}
	scope := map[string]cty.Value{"var": cty.ObjectVal(variables)}
	// Nomad replaces them when a task starts; the second is of a template.
	for _, name := range []string{"NOMAD_ALLOC_INDEX", "STOCKADE_NATS"} {
		scope[name] = cty.StringVal("${" + name + "}")
	}

	job := file.Jobs[0]
	context := &hcl.EvalContext{Variables: scope}
	if diagnostics := evaluate(parsed.Body.(*hclsyntax.Body).Blocks, context); diagnostics.HasErrors() {
		return "", diagnostics
	}
	var decoded api.Job
	if diagnostics := decoder().DecodeBody(job.Rest, context, &decoded); diagnostics.HasErrors() {
		return "", diagnostics
	}
	decoded.ID = &job.Name
	decoded.Canonicalize()
	var groups []string
	for _, group := range decoded.TaskGroups {
		for _, task := range group.Tasks {
			if task.Driver == "" {
				return "", fmt.Errorf("task %s has no driver", task.Name)
			}
		}
		groups = append(groups, fmt.Sprintf("%s x %d", *group.Name, *group.Count))
	}
	return fmt.Sprintf("valid, job %s, groups %s", job.Name, strings.Join(groups, ", ")), nil
}

// Times are texts such as "30s". The keys of `config` belong to the driver of a task, and are not checked.
func decoder() *gohcl.Decoder {
	decoder := &gohcl.Decoder{}
	duration := func(expression hcl.Expression, context *hcl.EvalContext) (time.Duration, hcl.Diagnostics) {
		var text string
		if diagnostics := gohcl.DecodeExpression(expression, context, &text); diagnostics.HasErrors() {
			return 0, diagnostics
		}
		value, err := time.ParseDuration(text)
		if err != nil {
			return 0, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: err.Error(), Subject: expression.Range().Ptr()}}
		}
		return value, nil
	}
	decoder.RegisterExpressionDecoder(reflect.TypeFor[time.Duration](),
		func(expression hcl.Expression, context *hcl.EvalContext, into any) (diagnostics hcl.Diagnostics) {
			*into.(*time.Duration), diagnostics = duration(expression, context)
			return diagnostics
		})
	decoder.RegisterExpressionDecoder(reflect.TypeFor[*time.Duration](),
		func(expression hcl.Expression, context *hcl.EvalContext, into any) hcl.Diagnostics {
			value, diagnostics := duration(expression, context)
			*into.(**time.Duration) = &value
			return diagnostics
		})
	return decoder
}

// Evaluates every expression outside of the variables: the types leave out those of `config`.
func evaluate(blocks hclsyntax.Blocks, context *hcl.EvalContext) (all hcl.Diagnostics) {
	for _, block := range blocks {
		if block.Type == "variable" {
			continue
		}
		for _, attribute := range block.Body.Attributes {
			_, diagnostics := attribute.Expr.Value(context)
			all = append(all, diagnostics...)
		}
		all = append(all, evaluate(block.Body.Blocks, context)...)
	}
	return all
}
