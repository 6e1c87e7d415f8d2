"""The platform as containers of deploy/docker-compose.yml: `make up`, `make down`, `make logs`."""
