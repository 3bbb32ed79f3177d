# nomad var put nomad/jobs/stockade-agents password="$(openssl rand -hex 24)"
# nomad job run -var image=registry.example/stockade deploy/agents.nomad.hcl
# nomad alloc logs -job stockade-agents load      the report
# nomad job stop stockade-agents                  agents wait for loads until then
#
# NATS, three agents on different machines, and one load of `target`, which they may reach.

variable "image" {
  description = "Image of deploy/Dockerfile, in a registry that the machines reach"
  type        = string
  default     = "stockade"
}

variable "url" {
  description = "URL of the load"
  type        = string
  default     = "http://target.example:8080/page/{key}"
}

variable "target" {
  description = "Server that the agents may reach"
  type        = string
  default     = "target.example:8080"
}

job "stockade-agents" {
  datacenters = ["*"]
  type        = "batch"

  group "nats" {
    network {
      port "nats" {}
    }

    service {
      name     = "stockade-nats"
      provider = "nomad"
      port     = "nats"

      check {
        type     = "tcp"
        interval = "5s"
        timeout  = "2s"
      }
    }

    task "nats" {
      driver = "docker"
      user   = "65532:65532"

      config {
        image           = "nats:2.11-alpine"
        command         = "nats-server"
        args            = ["--config", "/secrets/nats.conf"]
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
      }

      template {
        destination = "secrets/nats.conf"
        data        = <<-EOF
          listen: "{{ env "NOMAD_ADDR_nats" }}"
          jetstream { store_dir: "/alloc/data/nats", max_file_store: 1536MB }
          authorization {
            user: stockade
            password: "{{ with nomadVar "nomad/jobs/stockade-agents" }}{{ .password }}{{ end }}"
          }
        EOF
      }

      # Whole cores are the task's own: the messages of agents measure their clocks.
      resources {
        cores  = 1
        memory = 512
      }
    }

    ephemeral_disk {
      size = 2048
    }
  }

  group "agent" {
    count = 3

    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    restart {
      attempts = 10
      interval = "10m"
      delay    = "5s"
      mode     = "delay"
    }

    task "agent" {
      driver       = "docker"
      kill_timeout = "10s"

      # With the network of the machine: no other one is between the agent and the target.
      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
        args = [
          "agent",
          "--nats", "${STOCKADE_NATS}",
          "--name", "agent-${NOMAD_ALLOC_INDEX}",
          "--allow-target", var.target,
          "--wait", "5m",
        ]
      }

      template {
        destination = "secrets/nats.env"
        env         = true
        data        = <<-EOF
          STOCKADE_NATS={{ range nomadService "stockade-nats" }}nats://{{ .Address }}:{{ .Port }}{{ end }}
          STOCKADE_NATS_CREDENTIALS={{ with nomadVar "nomad/jobs/stockade-agents" }}stockade:{{ .password }}{{ end }}
        EOF
      }

      resources {
        cores  = 2
        memory = 512
      }
    }
  }

  group "load" {
    # A load that failed or was refuted is a result. It is not repeated.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    # Ends once NATS is registered, and the load starts.
    task "await-nats" {
      driver = "docker"

      lifecycle {
        hook = "prestart"
      }

      restart {
        attempts = 60
        interval = "10m"
        delay    = "5s"
        mode     = "fail"
      }

      config {
        image      = var.image
        entrypoint = ["bash", "-c"]
        args       = ["test $STOCKADE_NATS"]
      }

      template {
        destination = "local/nats.env"
        env         = true
        data        = <<-EOF
          STOCKADE_NATS={{ range nomadService "stockade-nats" }}nats://{{ .Address }}:{{ .Port }}{{ end }}
        EOF
      }

      resources {
        cpu    = 100
        memory = 64
      }
    }

    task "load" {
      driver       = "docker"
      kill_timeout = "10s"

      config {
        image           = var.image
        network_mode    = "host"
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
        args = [
          "load", var.url,
          "--keys", "zipf:1000",
          "--rate", "1500/s",
          "--duration", "30s",
          "--expect", "p99 < 100ms and success >= 0.999",
          "--on", "${STOCKADE_NATS}",
          "--agents", "3",
          "--agents-wait", "5m",
        ]
      }

      template {
        destination = "secrets/nats.env"
        env         = true
        data        = <<-EOF
          STOCKADE_NATS={{ range nomadService "stockade-nats" }}nats://{{ .Address }}:{{ .Port }}{{ end }}
          STOCKADE_NATS_CREDENTIALS={{ with nomadVar "nomad/jobs/stockade-agents" }}stockade:{{ .password }}{{ end }}
        EOF
      }

      resources {
        cores  = 1
        memory = 512
      }
    }
  }
}
